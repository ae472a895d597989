"""Reads `gputrace report --json` and the bare CUPTI client's totals, and compares them with what a program expects."""

import ctypes
import ctypes.util
import json
import re
from collections import defaultdict

COPY_DIRECTIONS = {"htod": "cpu_to_gpu", "dtoh": "gpu_to_cpu", "dtod": "gpu_to_gpu", "ptop": "peer_to_peer", "memcpy2": "peer_to_peer",
                   "htoa": "cpu_to_gpu", "atoh": "gpu_to_cpu", "atoa": "gpu_to_gpu", "atod": "gpu_to_gpu", "dtoa": "gpu_to_gpu", "htoh": "cpu_to_cpu"}
# What a plain device count can know; the rest only the host side sees.
DEVICE_KEYS = ("kernel_calls", "graph_node_calls", "graph_launches", "copies", "memsets")


def expected(text):
    """The EXPECT line of a program as a dictionary, or None."""
    found = re.search(r"^EXPECT (.*)$", text, re.MULTILINE)
    return {key: int(value) for key, value in (part.split("=") for part in found[1].split())} if found else None


def parse(text):
    """The JSON of `report --json`; raises ValueError with the start of the text if it is none."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"report --json printed no JSON ({error}): {text[:200]!r}") from error


def counts(report):
    """The counts of a report under the names that EXPECT lines use."""
    kernels, transfers, memsets = report.get("kernels") or [], report.get("transfers") or [], report.get("memsets") or {}
    return {
        "launches": report.get("launches"),
        "captured_launches": report.get("captured_launches"),
        "graph_launches": report.get("graph_launches"),
        "kernel_calls": sum(kernel.get("calls", 0) for kernel in kernels),
        "graph_node_calls": report.get("graph_node_calls"),
        "copies": sum(transfer.get("calls", 0) for transfer in transfers),
        "memsets": memsets.get("calls", 0) if isinstance(memsets, dict) else None,
        "device_only": report.get("device_only"),
        "dropped": sum(number for number in (report.get("dropped") or {}).values() if isinstance(number, (int, float))),
    }


def client_totals(path):
    """The sum of the client's JSON lines (one a process), or None if it wrote none."""
    total = defaultdict(int)
    copies, names, lines = defaultdict(lambda: [0, 0, 0]), defaultdict(lambda: [0, 0]), 0
    memory = defaultdict(lambda: [0, 0, 0, 0])
    try:
        text = open(path, encoding="utf-8", errors="replace").read()
    except OSError:
        return None
    for line in filter(None, text.splitlines()):
        record = json.loads(line)
        lines += 1
        for key in ("graph_launches", "bad_times", "dropped"):
            total[key] += record[key]
        for key in ("kernels", "graph_kernels", "graph_nodes", "memsets"):
            total[key] += record[key]["calls"]
        total["kernel_ns"] += record["kernels"]["ns"]
        for kind, direction in COPY_DIRECTIONS.items():
            if kind in record:
                for i, field in enumerate(("calls", "bytes", "ns")):
                    copies[direction][i] += record[kind][field]
        for name, (calls, ns) in record.get("names", {}).items():
            names[name][0] += calls
            names[name][1] += ns
        for kind, sums in record.get("memory", {}).items():
            memory[kind] = [one + other for one, other in zip(memory[kind], sums)]
    return {**total, "copies": dict(copies), "names": dict(names), "memory": dict(memory)} if lines else None


def client_counts(totals):
    """The client's totals under EXPECT's names; a launch is a kernel outside a graph."""
    return {
        "launches": totals["kernels"] - totals["graph_kernels"],
        "graph_launches": totals["graph_launches"],
        "kernel_calls": totals["kernels"],
        "graph_node_calls": totals["graph_nodes"],
        "copies": sum(calls for calls, _, _ in totals["copies"].values()),
        "memsets": totals["memsets"],
    }


def times(totals, number):
    """What `number` processes' clients would count if each did what these totals are of."""
    scaled = {key: value * number for key, value in totals.items() if not isinstance(value, dict)}
    for key in ("copies", "names"):
        scaled[key] = {name: [value * number for value in values] for name, values in totals[key].items()}
    return scaled


def differences(want, got, keys=None):
    """`key got!=want` for every key of `want` that differs."""
    return [f"{key} {got.get(key)}!={want[key]}" for key in (keys or want) if key in want and got.get(key) != want[key]]


def transfers(report):
    """{direction: [calls, bytes]} of a report."""
    found = defaultdict(lambda: [0, 0])
    for transfer in report.get("transfers") or []:
        found[transfer["direction"]][0] += transfer.get("calls", 0)
        found[transfer["direction"]][1] += transfer.get("bytes", 0)
    return dict(found)


class Demangler:
    """libstdc++'s own demangler, which is what torch.profiler's names went through."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libstdc++.so.6")
            self.function = self.library["__cxa_demangle"]
            self.function.restype = ctypes.c_void_p
            self.function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
            self.free = ctypes.CDLL(None)["free"]
            self.free.argtypes = [ctypes.c_void_p]
        except (OSError, AttributeError):
            self.function = None

    def __call__(self, name):
        if not self.function or not name.startswith("_Z"):
            return name
        status = ctypes.c_int()
        result = self.function(name.encode(), None, None, ctypes.byref(status))
        if status.value or not result:
            return name
        text = ctypes.string_at(result).decode(errors="replace")
        self.free(result)
        return text


def base_name(name):
    """A name's outermost identifier: no return type, template arguments or parameters."""
    depth, kept = 0, []
    text = name.replace("(anonymous namespace)", "{anonymous}")
    for i, letter in enumerate(text):
        if letter == "<":
            depth += 1
        elif letter == ">" and text[i - 1:i] != "-":
            depth = max(0, depth - 1)
        elif depth == 0:
            if letter == "(":
                break
            kept.append(letter)
    words = "".join(kept).split()
    return words[-1] if words else name


def spelling(name):
    """A name with everything that demanglers spell differently taken out: spaces, casts of literals,
    suffixes, return types."""
    text = name.replace("(anonymous namespace)", "anon").replace("{anonymous}", "anon")
    text = re.sub(r"\((?:bool|int|unsigned int|long|unsigned long|short|char|signed char|unsigned char|[\w:]+)\)(?=-?\d)", "", text)
    # Of a function that names a type, libstdc++ leaves the return type out and others do not.
    text = re.sub(r"\bvoid (?=[\w:({])", "", text)
    text = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", text))
    text = re.sub(r"(?<=\d)(?:ul|u|l)\b", "", text, flags=re.IGNORECASE)
    return re.sub(r"\s+", "", text).replace("unsignedlong", "ulong")


def compare_names(want, got):
    """Compares {name: calls}: by full name, then spelling, then base name.

    Returns (level, lines): the strictest level at which they are equal ("exact", "spelling", "base name" or None)
    and what differs at the levels before."""
    lines = []
    for level, key in (("exact", str), ("spelling", spelling), ("base name", base_name)):
        left, right = defaultdict(int), defaultdict(int)
        for name, calls in want.items():
            left[key(name)] += calls
        for name, calls in got.items():
            right[key(name)] += calls
        if left == right:
            return level, lines
        for name in sorted(set(left) | set(right)):
            if left[name] != right[name]:
                lines.append(f"[{level}] want {left[name]} got {right[name]}: {name}")
    return None, lines


def kernel_calls(report, demangle):
    """{full demangled name: calls} of a report."""
    found = defaultdict(int)
    for kernel in report.get("kernels") or []:
        found[demangle(kernel.get("full_name") or kernel.get("name") or "?")] += kernel.get("calls", 0)
    return dict(found)


def kernel_ns(report):
    return sum(kernel.get("total_ns") or 0 for kernel in report.get("kernels") or [])
