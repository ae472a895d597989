"""Takes gputrace's hooks out of this process and puts them back, or puts other functions in their places: what calls cost without them, in the same process.

Libraries such as the CUDA runtime keep the addresses of driver functions that they looked up, in memory of their own. Wherever such a word has the
address of a hook, it gets that of the driver's own function. Words of the heap and of libraries that come later keep the hooks.
"""
import array
import ctypes
import struct

HEADER_SECTIONS, SECTION_DYNSYM, SYMBOL_BYTES = 0x28, 11, 24


def mappings():
    """(low, high, mode, offset, path) of each."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            span, mode, offset, _, _, *path = line.split(maxsplit=5)
            low, high = (int(part, 16) for part in span.split("-"))
            yield low, high, mode, int(offset, 16), path[0].strip() if path else ""


def exported(path, base):
    """{name: address} of a mapped library's exported symbols."""
    with open(path, "rb") as file:
        data = file.read()
    table, = struct.unpack_from("<Q", data, HEADER_SECTIONS)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + size * at) for at in range(count)]
    found = {}
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind != SECTION_DYNSYM:
            continue
        texts = sections[link][4]
        for at in range(offset, offset + length, SYMBOL_BYTES):
            name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", data, at)
            if section and value:
                begin = texts + name
                found[data[begin:data.index(b"\0", begin)].decode()] = base + value
    return found


def of_libraries(regions):
    """The writable data of libraries: mapped from a file, or without one right behind such memory."""
    behind = 0
    for low, high, mode, _, path in regions:
        is_of_file = path.startswith("/") and "libgputrace.so" not in path and not path.startswith("/dev")
        if "w" in mode and "p" in mode and (is_of_file or not path and low == behind):
            yield low, high
        behind = high if is_of_file or not path and low == behind else 0


class HookTables:
    def __init__(self):
        regions = list(mappings())

        def library(name):
            of_it = [region for region in regions if name in region[4]]
            if not of_it:
                raise RuntimeError(f"{name} is not in this process")
            return of_it, exported(of_it[0][4], of_it[0][0])

        (own, hooks), (_, driver) = library("libgputrace.so"), library("libcuda.so")
        self.hooks, self.driver = hooks, driver
        code = [region for region in own if "x" in region[2]]
        low, high = code[0][0], code[-1][1]
        originals = {address: driver[name] for name, address in hooks.items() if name.startswith("cu") and name in driver}
        # (place, hook, the driver's function)
        self.words = []
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            for begin, end in of_libraries(regions):
                memory.seek(begin)
                words = array.array("Q", memory.read(end - begin))
                for at, word in enumerate(words):
                    if low <= word < high and word in originals:
                        self.words.append((begin + 8 * at, word, originals[word]))
        if not self.words:
            raise RuntimeError("no library of this process has a hook's address")

    def take_out(self, are_out):
        for place, hook, original in self.words:
            ctypes.c_uint64.from_address(place).value = original if are_out else hook

    def replace(self, others):
        """Puts other functions where libraries have hooks, {hook: other}, until `take_out` is called. Returns how many words it changed."""
        found = [(place, others[hook]) for place, hook, _ in self.words if hook in others]
        for place, other in found:
            ctypes.c_uint64.from_address(place).value = other
        return len(found)
