#!/usr/bin/env python3
"""Writes fuzz/corpus: few small named inputs, so that fuzzing starts at the interesting places.

    fuzz/seeds.py        (again after a change of the format or of a target's input)

Each target's file says how its input is laid out; docs/FORMAT.md says what the bytes mean.
"""

import struct
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"
FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
FILE_HEADER_BYTES = 64
MAX = 2**64 - 1


def words(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def cell(kind, cells=1, flags=0, payload=b""):
    return (struct.pack("<HBB", kind, cells, flags) + payload).ljust(64, b"\1")


def ring(capacity_bits, head, tail, later, *cells, limit=255):
    return struct.pack("<BBQQQ", capacity_bits, limit, head, tail, later) + b"".join(cells)


def record(kind, identity, fields=(), text=b"", magic=0xDEF1):
    padded = text + bytes(-len(text) % 8)
    return words(kind | magic << 16 | len(text) << 32, identity | len(fields) << 32, *fields) + padded


def area(*parts, reserved=0, next_id=1, at=0):
    return struct.pack("<QQB", reserved, next_id, at) + b"".join(parts)


def hole(length):
    return words(0xDEF1 << 16 | length << 32) + bytes(8 * (length - 1))


def message(magic=b"GTS1", version=1 << 16, kind=1, text=b"", text_bytes=None, value=0):
    length = len(text) if text_bytes is None else text_bytes
    return magic + struct.pack("<IIIIIQ", version, kind, 42, 1, length, value) + text


def segment(mapped, total=None, table=8192, rings=2, definitions=16384, size=4096, magic=b"GPUTRACE", version=1 << 16,
            kind=1, data=20480, cells=64):
    header = magic + struct.pack("<IIQQIIQQ", version, kind, mapped if total is None else total, table, rings, 0,
                                 definitions, size)
    ring_header = struct.pack("<IIQQ", 0, 0, data, cells)
    return words(mapped) + header.ljust(192, b"\0") + ring_header.ljust(192, b"\0")


def varints(*values):
    out = b""
    for value in values:
        while value >= 0x80:
            out += bytes([value & 0x7F | 0x80])
            value >>= 7
        out += bytes([value])
    return out


def block(kind, payload, encoding=0, process=0, ring=0, raw_bytes=None):
    raw_bytes = len(payload) if raw_bytes is None else raw_bytes
    return struct.pack("<BBBBIH", kind, encoding, process, ring, raw_bytes, len(payload)) + payload


def blocks(*parts):
    return b"\1" + b"".join(parts)


BEGIN = block(1, varints(5, 6, 3) + b"1.0" + varints(2, 6) + b"python" + varints(8) + b"train.py")
JOIN = block(2, varints(42, 1, 1, 2, 3_000_000_000, 7, 8, 9))
NAMES = block(3, varints(2, 2, 1, 0, 6) + b"kernel" + varints(3, 2, 3, 7, 1, 0, 0))
# Two launches: one shape, eight common fields, eleven of the launch, two at the end; modes 0 to 6.
LAUNCHES = varints(2, 0, 1, 16, 1) + (
    b"\0" + b"\1\5" + b"\3\x10\x20" + b"\2\3\4" + b"\5\1\2" + b"\0" * 3 + b"\6" + bytes(8) + b"\0" * 12
)
UNKNOWN = varints(1, 1, 1, 999, 1) + b"\1" + varints(999 | 1 << 16) + b"\0" * 7 + b"\x11" * 64
COUNTS = block(5, varints(0, 2, 0, 0, 12, *range(12)))
LEAVE = block(6, varints(1, 99))
END = block(7, varints(1_000_000))

# A real trace as the targets want it: without its header, in a mode that leaves it as it is.
DEMO = b"\0" + (FIXTURES / "demo-h200.gputrace").read_bytes()[FILE_HEADER_BYTES:]
PYTORCH = b"\0" + (FIXTURES / "pytorch-h200.gputrace").read_bytes()[FILE_HEADER_BYTES:]


def invented(*batches):
    return b"\1" + b"".join(batches)


def cells(*entries, ring=0):
    return struct.pack("<BB", 8 | ring << 4, len(entries)) + b"".join(entries)


def entry(kind, *values, flags=0):
    """A cell of small values; kind by its place in the target's table."""
    values = values + (1,) * (8 - len(values))
    return struct.pack("<BB", kind, flags) + b"".join(struct.pack("<BB", value, 0) for value in values)


def failed_wait(status):
    """A cell of large values: a wait that returned an error."""
    return struct.pack("<BB", 10 | 64, 0) + words(1, 2, 3, 0, 1, 0, 0, status << 32)


def definition(kind, identity, *fields, text=b""):
    return struct.pack("<BBB", kind, identity | 1, len(fields)) + bytes(fields) + struct.pack("<B", len(text)) + text


def definitions(*records):
    return struct.pack("<BB", 2, len(records)) + b"".join(records)


# Where CPython 3.8, 3.11 and 3.12 keep what a stack is read from (callstack/src/python/layout/table.rs).
PYTHON = {
    8: dict(frame=24, between=None, previous=24, code=32, at=104, owner=None, line=40, name=112, file=104, table=120,
            version=None, ascii=48),
    11: dict(frame=56, between=8, previous=48, code=32, at=56, owner=69, line=72, name=128, file=112, table=136,
             version=None, ascii=48),
    12: dict(frame=56, between=0, previous=8, code=0, at=56, owner=70, line=68, name=128, file=112, table=136,
             version=92, ascii=40),
}


def python_process(minor, depth=2, ring=False, owner=0, table_bytes=20, version=0):
    """An interpreter's memory: the thread state, frames, one code object, its name, its file and its line table."""
    at = PYTHON[minor]
    memory = bytearray(0x800 + 0x80 * depth + table_bytes)

    def put(base, offset, value, size=8):
        if offset is not None:
            memory[base + offset : base + offset + size] = value.to_bytes(size, "little")

    def pointer(offset):
        return 0xFFFFFFFF << 32 | offset

    between, code, name, file, frames = 0x100, 0x180, 0x300, 0x380, 0x400
    table = frames + 0x80 * depth
    innermost = pointer(frames)
    put(0, 16, pointer(0))
    put(0, at["frame"], innermost if at["between"] is None else pointer(between))
    put(between, at["between"], innermost)
    for index in range(depth):
        frame, last = frames + 0x80 * index, index == depth - 1
        put(frame, at["previous"], pointer(frames) if ring else 0 if last else pointer(frame + 0x80))
        put(frame, at["code"], pointer(code))
        put(frame, at["at"], 6 if minor < 11 else pointer(code + 0xC0))
        put(frame, at["owner"], owner, 1)
    put(code, at["line"], 22, 4)
    put(code, at["version"], version, 4)
    for field, target in (("name", name), ("file", file), ("table", table)):
        put(code, at[field], pointer(target))
    for text, letters in ((name, b"forward"), (file, b"model.py")):
        put(text, 16, len(letters))
        put(text, 24, MAX)
        put(text, 32, 0b11001 << 2, 4)
        memory[text + at["ascii"] : text + at["ascii"] + len(letters)] = letters
    put(table, 16, table_bytes)
    return bytes([minor - 8]) + bytes(memory)


# Behind the tables.
STACK = 0x240


def native_process(instructions, stack, augmentation=b"zR", pc=0x8001, sp=STACK, bp=0):
    """A table of one function of 100 bytes, and a stack: the header, what all functions have, the function, the stack."""
    image = bytearray(STACK)
    common = b"\0\0\0\0\1" + augmentation + b"\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01"
    function = struct.pack("<IIIB", 0x104, 0x8000 - 0x208, 100, 0) + instructions
    put = [
        (0, b"\x01\x1b\x03\x3b" + struct.pack("<III", 0, 1, 0x8000) + struct.pack("<I", 0x200)),
        (0x100, struct.pack("<I", len(common)) + common),
        (0x200, struct.pack("<I", len(function)) + function),
    ]
    for at, what in put:
        image[at : at + len(what)] = what
    return words(pc, sp, bp) + bytes(image) + words(*stack)


def in_image(at):
    return 0xFFFFFFFF << 32 | at


def kernel_lines():
    """What a module says of lines that was loaded from a cubin of Triton's."""
    image = (FIXTURES / "cubins" / "add_one.cubin").read_bytes()
    # .debug_line, and the only entry of .rela.debug_line.
    table, (place,) = image[0x560:0x5C7], struct.unpack_from("<Q", image, 0xC90)
    return struct.pack("<IIIIIIQ", 1, len(table), 0, 0, place, 7, 0) + b"add_one" + table


SEEDS = {
    "model": {
        "demo": DEMO,
        "pytorch": PYTORCH,
        "a_launch_and_its_record": invented(
            definitions(definition(5, 1, 7, 0, text=b"main"), definition(2, 3, text=b"kernel")),
            cells(entry(0), entry(1), entry(4)),
            cells(entry(14), entry(1), entry(17), ring=1),
        ),
        "records_only": invented(cells(entry(2), entry(14), entry(1), entry(15), entry(16), entry(17))),
        "every_call": invented(cells(*(entry(kind) for kind in range(4, 14)))),
        "copies_and_fills": invented(cells(entry(6), entry(7), entry(15), entry(16))),
        "gaps": invented(cells(entry(3), entry(3, 2), entry(20))),
        "two_sessions": invented(b"\0" + words(5, 6), b"\1\1" + words(1000, 1, 2, 3), cells(entry(4)), b"\6\2" + words(9), b"\7" + words(9)),
        "counters": invented(b"\5" + bytes(range(12)) + words(1, MAX, 3, MAX)),
        "a_fault": invented(cells(entry(0), entry(4), entry(5), entry(6, flags=8), failed_wait(700)), b"\6\0" + words(9)),
        "killed": invented(
            cells(entry(0), entry(4), entry(5), entry(7)), cells(entry(14), entry(1), ring=1), b"\6\2" + words(9)
        ),
        # A stack of two lines of a code and a mark; the table's pieces name each other.
        "a_stack": invented(
            definitions(
                definition(10, 1, 0, 0, 3, 2, 3, 200),
                definition(14, 3, 1, 12, 40, 1, 4, 3, 12, 5, text=b"ffile" + bytes([0x80 | 13 << 3, 2, 0xF8, 0xF0, 0x7F, 0x7F])),
                definition(15, 5, 7, text=bytes([0xDA, 1])),
                definition(15, 7, 5, text=bytes([0x9A, 0xFA])),
            ),
            cells(entry(0), entry(4), entry(5)),
            cells(entry(14), entry(1), entry(17), ring=1),
        ),
        "a_kernel_s_lines": invented(
            definitions(
                definition(15, 5, 0, text=kernel_lines()),
                definition(4, 7, 1, 0, 5, len(kernel_lines())),
                definition(3, 1, 2, 0, 7, text=b"add_one"),
            ),
            cells(entry(0), entry(1), entry(4)),
            cells(entry(14), entry(1), entry(17), ring=1),
        ),
        "no_session": invented(b"\xc6\0" + words(1), cells(entry(4))),
    },
    "trace_file": {
        "demo": DEMO,
        "pytorch": PYTORCH,
        "empty": b"\0",
        "whole": blocks(BEGIN, JOIN, NAMES, block(4, LAUNCHES, ring=2), COUNTS, LEAVE, END),
        "not_closed": blocks(BEGIN, JOIN, NAMES),
        "after_the_end": blocks(BEGIN, END, BEGIN),
        "unknown_block_is_skipped": blocks(BEGIN, block(200, b"anything"), END),
        "unknown_kind_and_a_tail": blocks(BEGIN, JOIN, block(4, UNKNOWN), END),
        "cells_claim_much": blocks(BEGIN, block(4, varints(1 << 16, 0, 1, 16, 255))),
        "shape_out_of_range": blocks(BEGIN, block(4, varints(1, 0, 2, 16, 1, 17, 1, 9))),
        "column_of_unknown_mode": blocks(BEGIN, block(4, varints(1, 0, 1, 16, 1) + b"\x09")),
        "near_without_a_base": blocks(BEGIN, block(4, varints(1, 0, 1, 16, 1) + b"\4\0")),
        "text_past_the_end": blocks(block(1, varints(5, 6, 100) + b"1.0")),
        "definitions_claim_much": blocks(BEGIN, block(3, varints(2**40))),
        "varint_too_long": blocks(block(7, b"\xff" * 11)),
        "zstd_of_nothing": blocks(block(1, b"", encoding=1, raw_bytes=8)),
        # One frame of zstd with a raw block of five bytes.
        "zstd": blocks(BEGIN, block(7, b"\x28\xb5\x2f\xfd\x20\x01\x09\0\0\x05", encoding=1, raw_bytes=1)),
        "zstd_that_is_longer_than_it_says": blocks(block(7, b"\x28\xb5\x2f\xfd\x20\x04\x21\0\0abcd", encoding=1, raw_bytes=2)),
        "raw_header_and_half_a_block": b"\0GTB1\1\0\0\0",
        "raw_block_too_large": b"\0GTB1" + struct.pack("<HHIIIIQII", 1, 0, 0, 0, 2**32 - 1, 2**32 - 1, 0, 0, 0),
    },
    "ring_reader": {
        "empty": ring(2, 0, 0, 0),
        "calls": ring(3, 8, 0, 8, *(cell(kind) for kind in range(16, 24))),
        "more_calls": ring(1, 2, 0, 2, cell(24), cell(25, flags=1)),
        "records": ring(3, 6, 0, 6, cell(32, 2), cell(0), cell(33), cell(34), cell(35), cell(35)),
        "marks": ring(2, 3, 0, 4, cell(1), cell(2), cell(3), cell(4)),
        "unknown_kind_is_skipped": ring(2, 4, 0, 4, cell(60000, 3), cell(0), cell(0), cell(16)),
        "across_the_wrap": ring(1, 4, 2, 5, cell(16), cell(17), limit=1),
        "length_0": ring(2, 4, 0, 4, cell(16, 0)),
        "length_past_the_end": ring(2, 4, 0, 4, cell(32, 255)),
        "kernel_of_one_cell": ring(2, 1, 0, 1, cell(32, 1)),
        "head_too_far": ring(2, 5, 0, MAX),
        "head_behind_tail": ring(2, 0, 1, 0),
        "positions_at_their_end": ring(2, 1, MAX - 1, 0, cell(16), cell(17), cell(18), cell(19)),
    },
    "definitions": {
        "empty": area(),
        "records": area(record(2, 1, text=b"kernel"), record(3, 2, (7, 1, 0)), bytes(64), reserved=8, next_id=3),
        "hole_of_zeros": area(bytes(32), record(2, 1, text=b"after"), reserved=7, next_id=2),
        "hole_that_says_its_length": area(hole(5), record(2, 1, text=b"after"), reserved=8, next_id=2),
        "hole_past_the_end": area(hole(2)[:8] + words(0), words(0xDEF1 << 16 | 9 << 32)),
        "hole_of_no_length": area(words(0xDEF1 << 16), record(2, 1)),
        "text_past_the_end": area(words(2 | 0xDEF1 << 16 | 100 << 32, 1)),
        "text_too_long": area(words(2 | 0xDEF1 << 16 | (1 << 32) * (2**31), 1)),
        "fields_past_the_end": area(record(2, 1)[:8] + words(1 | 9 << 32)),
        "fields_too_many": area(record(2, 1)[:8] + words(MAX)),
        "no_magic": area(record(2, 1, magic=0x1234)),
        "cut_after_the_first_word": area(record(2, 1)[:8]),
        "reserved_past_the_end": area(record(2, 1), reserved=MAX, next_id=2**32 - 1),
        "look_in_the_middle": area(record(2, 1, text=b"a name of some length"), at=2, reserved=5),
    },
    "handshake": {
        "hello": message(text=b"python train.py"),
        "segment": message(kind=2, value=7),
        "bye": message(kind=3, value=2),
        "done": message(kind=18, text=b"summary\n" * 8),
        "other_version": message(version=2 << 16),
        "other_magic": message(magic=b"GTS2"),
        "text_cut_short": message(text=b"abc", text_bytes=4),
        "text_too_long": message(text_bytes=2**32 - 1),
        "bytes_after_the_text": message(text=b"abcdef", text_bytes=3),
        "short": message()[:31],
    },
    "layout": {
        "primary": segment(1 << 16),
        "rings_only": segment(1 << 16, kind=2, definitions=0, size=0),
        "not_a_segment": segment(1 << 16, magic=b"GPUTRACK"),
        "other_version": segment(1 << 16, version=2 << 16),
        "newer_minor": segment(1 << 16, version=1 << 16 | 9),
        "shorter_than_it_says": segment(8191, total=1 << 16),
        "table_past_the_end": segment(8192 + 192, rings=2),
        "table_in_the_header": segment(1 << 16, table=64),
        "rings_too_many": segment(1 << 20, rings=1025),
        "definitions_wrap_round": segment(1 << 16, definitions=MAX - 63, size=128),
        "definitions_in_the_header": segment(1 << 16, definitions=64),
        "ring_wraps_round": segment(1 << 16, cells=1 << 58),
        "ring_past_the_end": segment(1 << 16, data=(1 << 16) - 64, cells=2),
        "ring_not_a_power_of_two": segment(1 << 16, cells=3),
        "empty": b"",
    },
    "native_frames": {
        "chain": native_process(b"\x41\x0e\x10\x86\x02", [0, in_image(0x8005)] * 6 + [0, 0]),
        "frame_pointer": native_process(
            b"\x41\x0e\x10\x86\x02\x43\x0d\x06",
            [word for n in range(1, 7) for word in (in_image(STACK + 16 * n), in_image(0x8009))],
            pc=0x8009,
            bp=STACK,
        ),
        "aligned": native_process(
            b"\x41\x10\x06\x02\x76\0\x41\x0f\x03\x76\x78\x06",
            [in_image(STACK + 24), in_image(0x8009), 0, in_image(STACK + 40), 0],
            pc=0x8009,
            bp=STACK + 8,
        ),
        "signal": native_process(
            b"", [0] * 15 + [in_image(STACK), 0, 0, 0, 0, in_image(STACK + 200), in_image(0x8003)] + [0] * 8, augmentation=b"zRS"
        ),
        "ring": native_process(b"", [in_image(0x8005)] * 300),
        "outermost": native_process(b"\x07\x10", []),
        "no_table": words(0, 0, 0),
    },
    "python_frames": {
        "old": python_process(8),
        "contents": python_process(11),
        "numbered": python_process(12, version=7),
        "shims": python_process(12, owner=3),
        "ring": python_process(12, ring=True),
        "long_table": python_process(8, table_bytes=40_000),
        "empty": b"",
    },
}
# Exports take what the model takes: here without the recorded trace that has no stacks, and with a part of
# the trace selected.
SEEDS["exports"] = {name: content for name, content in SEEDS["model"].items() if name != "demo"}
SEEDS["exports"] |= {f"a_part_of_{name}": bytes([content[0] | 2]) + content[1:] for name, content in SEEDS["exports"].items()}
del SEEDS["exports"]["pytorch"]


def main():
    for target, cases in SEEDS.items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in cases.items():
            (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
