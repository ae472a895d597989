"""Which exported driver symbol each cuGetProcAddress answer is, for every name, version and flag.

A hook table made by exported name is complete only if every answer is the address of some export. Prints one summary
line; the whole table goes to the file given. getproc_table.py TABLE
"""
import ctypes
import re
import struct
import sys

VERSIONS = [2000, 2020, 3000, 3010, 3020, 4000, 4010, 5000, 5050, 6000, 6050, 7000, 7050, 8000, 9000, 9020, 10000, 10010, 10020,
            11000, 11010, 11020, 11030, 11040, 11050, 11060, 11070, 11080, 12000, 12010, 12020, 12030, 12040, 12050, 12060,
            12080, 12090, 13000, 13010, 13020]
FLAGS = {0: "default", 1: "legacy", 2: "per-thread"}


def exported(path):
    """Names in the dynamic symbol table that are defined functions."""
    data = open(path, "rb").read()
    offset, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    for section in sections:
        if section[1] != 11:  # SHT_DYNSYM
            continue
        strings = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, info, _, index, _, _ = struct.unpack_from("<IBBHQQ", data, at)
            if index and info & 15 in (2, 10):
                end = data.index(b"\0", strings + name)
                yield data[strings + name:end].decode()


def main():
    driver = ctypes.CDLL("libcuda.so.1")
    path = next(line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so" in line)
    names = sorted(set(n for n in exported(path) if n.startswith("cu")))
    addresses = {}
    for name in names:
        addresses.setdefault(ctypes.cast(getattr(driver, name), ctypes.c_void_p).value, []).append(name)
    assert driver.cuInit(0) == 0
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    ask = driver.cuGetProcAddress_v2
    ask.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_uint64, ctypes.POINTER(ctypes.c_int)]
    bases = sorted(set(names) | set(re.sub(r"(_v\d+)?(_pts[zd])?$", "", n) for n in names))
    asked = answered = hidden = 0
    hidden_names, table = {}, []
    for name in bases:
        for flag, flag_name in FLAGS.items():
            ranges = []
            for at in VERSIONS:
                found, status = ctypes.c_void_p(), ctypes.c_int()
                asked += 1
                code = ask(name.encode(), ctypes.byref(found), at, flag, ctypes.byref(status))
                if code or not found.value:
                    answer = f"none({code},{status.value})"
                elif found.value in addresses:
                    answer = "=".join(addresses[found.value])
                    answered += 1
                else:
                    answer = "HIDDEN"
                    answered += 1
                    hidden += 1
                    hidden_names.setdefault(name, []).append((at, flag))
                if not ranges or ranges[-1][1] != answer:
                    ranges.append((at, answer))
            table.append(f"{name} {flag_name}: " + ", ".join(f"{at}+ {answer}" for at, answer in ranges))
    with open(sys.argv[1], "w") as out:
        out.write(f"driver {version.value} {path}, {len(names)} exports\n")
        for address, same in sorted(addresses.items(), key=lambda item: item[1]):
            if len(same) > 1:
                out.write("one address: " + " ".join(same) + "\n")
        out.write("\n".join(table) + "\n")
    print(f"GETPROC driver={version.value} exports={len(names)} asked={asked} answered={answered} "
          f"not_an_export={hidden} names={','.join(hidden_names) or '-'}")


main()
