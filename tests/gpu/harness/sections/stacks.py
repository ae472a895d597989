"""Kernels are charged to the lines that launched them: hand-counted launches a line, and a model's layers against torch.profiler.

A comment `LAUNCHES n` in a program says how many kernels its line launches in all, `LAYER name` which layer it calls.
"""

import json
import re

from ..build import PROGRAMS

# torch.profiler's shares and ours are of two processes.
SHARE_TOLERANCE = 0.03
COUNTED = ("cupy_program.py", "triton_program.py", "numba_program.py")


def marked(program, word):
    """{line: text after the mark}"""
    lines = (PROGRAMS / program).read_text(encoding="utf-8").splitlines()
    found = ((number, re.search(rf"#.*\b{word} (\w+)", line)) for number, line in enumerate(lines, 1))
    return {number: mark[1] for number, mark in found if mark}


def lines_of(report, program):
    """{line: its entry} of the program's own file."""
    return {entry["line"]: entry for entry in report.get("lines") or [] if entry["path"].endswith("/" + program) or entry["path"] == program}


def sources(report, begin):
    """Kernels of such names; none that is called so is a failure of its own."""
    return [kernel for kernel in report["kernels"] if kernel["name"].startswith(begin)] or [{"name": begin, "source": None}]


def kernels(entry):
    return sum(kernel["calls"] for kernel in entry["charged_kernels"] if not kernel["name"].startswith(("memcpy", "memset", "graph ", "whole graph")))


def counted(bench, program):
    name = program.removesuffix("_program.py")
    outcome, folder = bench.traced(name, bench.script(program), limit_s=120)
    report = bench.report(name, folder)
    if outcome.code != 0 or not report:
        bench.row(name, "SKIP" if outcome.code else "FAIL", f"{outcome.ending()} {outcome.stderr[-300:]!r}")
        return
    found = lines_of(report, program)
    for line, number in marked(program, "LAUNCHES").items():
        got = kernels(found[line]) if line in found else 0
        bench.check(f"{name}-line-{line}", got == int(number), f"{got} kernels, by hand {number}")
    # What names its kernels' own lines: the line of the first one's def.
    for kernel in sources(report, "add_one") if name == "triton" else ():
        line = (PROGRAMS / program).read_text(encoding="utf-8").splitlines().index("def add_one(pointer, n, BLOCK: tl.constexpr):") + 1
        got = kernel["source"] or {}
        bench.check(f"{name}-source", got.get("file", "").endswith("/" + program) and got.get("line") == line, f"add_one at {got}, its def at line {line}")
    unread = {key: value for key, value in (report.get("dropped") or {}).items() if key.startswith("stacks")}
    bench.check(f"{name}-unread", not unread, f"{unread or 'every stack was read'}; {report['no_line']['calls']} operations without a line")


def layers(bench):
    program = "torch_layers.py"
    bare = bench.bare("layers", bench.script(program, "profile"), 120)
    outcome, folder = bench.traced("layers", bench.script(program), limit_s=120)
    report = bench.report("layers", folder)
    if bare.code != 0 or outcome.code != 0 or not report:
        bench.row("layers", "FAIL" if bare.code == 0 else "SKIP", f"{bare.ending()} {outcome.ending()} {(bare.stderr + outcome.stderr)[-300:]!r}")
        return
    want = json.loads(bare.stdout.splitlines()[0])
    found = lines_of(report, program)
    ours = {layer: (found[line]["total_ns"] or 0) if line in found else 0 for line, layer in marked(program, "LAYER").items()}
    whole = sum(ours.values()) or 1
    for layer, share in want.items():
        got = ours.get(layer, 0) / whole
        bench.check(f"layers-{layer}", abs(got - share) <= SHARE_TOLERANCE, f"{got:.4f}, torch.profiler {share:.4f}")


def run(bench):
    for program in COUNTED:
        counted(bench, program)
    layers(bench)
