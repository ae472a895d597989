"""Findings: PyTorch programs with one planted fault each, and their mended twins.

The first finding names the fault and its line; the twin does not have it. What a finding could save is what the twin gains by a stopwatch, within
the spread of two processes and what the rule cannot know. `diff` of both says the same gain as the stopwatch."""

import json
import re
import subprocess
from collections import namedtuple

# Fault, the rules that name it, the marks of lines of which it names one.
FAULTS = (
    ("sync", ("sync_in_loop",), ("sync",)),
    ("tiny", ("launch_bound",), ("tiny",)),
    ("pageable", ("pageable_copies",), ("copy",)),
    ("loader", ("data_loading",), ("load",)),
    ("recompile", ("recompilation",), ("compile",)),
    ("streams", ("default_stream",), ("default",)),
)
TITLE_CHARACTERS = 140
# What a twin gains, as a part of what the finding said. H100: 0.83 to 1.26.
GAIN_MIN, GAIN_MAX = 0.5, 1.5
# By how much `diff` and the stopwatch may differ: what lies between an operation and the program that reads the clock, and clocks of 2 %.
DIFF_S, DIFF_SHARE = 0.01, 0.02

# The findings' list, the whole, the stopwatch's times of the loop and from the first to the last operation (None if not printed), and the folder.
Run = namedtuple("Run", "found whole loop_s all_s folder")


def line_of(script, mark):
    for number, text in enumerate(script.read_text().splitlines(), 1):
        if text.endswith(f"  # {mark}"):
            return number
    raise ValueError(f"no line of {script.name} is marked {mark}")


def seconds(outcome, what):
    found = re.search(rf"^{what} ([\d.]+) s$", outcome.stdout, re.MULTILINE)
    return float(found[1]) if found else None


def findings(bench, name, command):
    """The run's findings and times; None if the program or its report failed."""
    outcome, folder = bench.traced(name, command, limit_s=90)
    if not bench.check(f"{name}-exit", outcome.code == 0, f"{outcome.ending()} {outcome.stderr[-200:]!r}" if outcome.code else outcome.ending()):
        return None
    report = bench.report(name, folder)
    if not report or "findings" not in report:
        bench.row(name, "FAIL", "the report has no findings")
        return None
    return Run(report["findings"]["list"], report["findings"], seconds(outcome, "loop"), seconds(outcome, "all"), folder)


def compared(bench, name, before, after):
    """What `diff` says that the twin gained, from the first operation to the last, against the stopwatch of the same runs."""
    if before.all_s is None or after.all_s is None:
        bench.row(f"{name}-diff", "FAIL", "a program did not print its time")
        return
    done = subprocess.run([bench.gputrace, "diff", "--format", "json", before.folder, after.folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=bench.limit(60), check=False)
    bench.keep(f"{name}-diff.json", done.stdout.decode(errors="replace"))
    try:
        totals = {total["name"]: total for total in json.loads(done.stdout)["totals"]}
        said = -totals["active_time"]["difference"] / 1e9
    except (ValueError, KeyError, TypeError) as error:
        bench.row(f"{name}-diff", "FAIL", f"exit {done.returncode}, {error!r}: {done.stderr.decode(errors='replace')[-200:]}")
        return
    gained = before.all_s - after.all_s
    detail = f"{said:.4f} s by diff, {gained:.4f} s by the stopwatch"
    step = totals["step_time"]
    if step["interval"]:
        least, most = sorted(-end / 1e6 for end in step["interval"])
        detail += f"; a step {-step['difference'] / 1e6:.3f} ms [{least:.3f}, {most:.3f}]"
    bench.check(f"{name}-diff", abs(said - gained) <= max(DIFF_S, DIFF_SHARE * abs(gained)), detail)


def brief(found):
    return "; ".join(f"{one['rule']} {one['saves_share']:.1%}" for one in found) or "none"


# Classes of the model's modules that launch kernels.
CLASSES = ("LlamaForCausalLM", "LlamaModel", "LlamaDecoderLayer", "LlamaAttention", "LlamaMLP", "LlamaRMSNorm", "Linear", "Embedding")


def modules(bench, script):
    """GPU time by module, against NVTX ranges that hooks of the same run put around each module's forward."""
    outcome, folder = bench.traced("modules", [*script, "llama", "ranges"], limit_s=90)
    if not bench.check("modules-exit", outcome.code == 0, f"{outcome.ending()} {outcome.stderr[-200:]!r}" if outcome.code else outcome.ending()):
        return
    report = bench.report("modules", folder) or {}
    found = {one["class"]: (one["calls"], one["total_ns"]) for one in report.get("modules", {}).get("list", ())}
    ranges = {one["name"]: (one["operations"], one["device_total_ns"]) for one in report.get("ranges", ())}
    for name in CLASSES:
        want, have = ranges.get(f"module {name}"), found.get(name)
        bench.check(f"modules-{name}", have is not None and have == want, f"operations and ns {have}, in the ranges {want}")
    outside = report.get("modules", {}).get("outside", {})
    bench.row("modules-outside", "INFO", f"{outside.get('calls')} operations outside of modules, {outside.get('total_ns')} ns")


def run(bench):
    script = bench.script("torch_insight.py")
    path = next(part for part in script if str(part).endswith("torch_insight.py"))
    wants = lambda name: not bench.only or name in bench.only  # noqa: E731
    for fault, rules, marks in FAULTS:
        if not wants(fault):
            continue
        broken = findings(bench, fault, [*script, fault])
        if broken is None:
            continue
        found = broken.found
        first = found[0] if found else {"rule": "none", "lines": [], "title": "", "saves_ns": 0}
        bench.check(f"{fault}-first", first["rule"] in rules, f"{brief(found)}: {first['title'][:TITLE_CHARACTERS]}")
        want = {line_of(path, mark) for mark in marks}
        lines = {line["line"] for line in first["lines"] if str(line["file"]).endswith("torch_insight.py")}
        bench.check(f"{fault}-line", bool(want & lines), f"names {sorted(lines)}, planted at {sorted(want)}")
        mended = findings(bench, f"{fault}-mended", [*script, fault, "mended"])
        if mended is None:
            continue
        bench.check(f"{fault}-mended", not any(one["rule"] in rules for one in mended.found), brief(mended.found))
        compared(bench, fault, broken, mended)
        if broken.loop_s and mended.loop_s:
            gained, said = broken.loop_s - mended.loop_s, first["saves_ns"] / 1e9
            detail = f"by the stopwatch {gained:.4f} s of {broken.loop_s:.4f}, {said:.4f} s by the finding; from first to last operation {broken.whole['span_ns'] / 1e9:.4f} s"
            bench.check(f"{fault}-gain", said > 0 and GAIN_MIN <= gained / said <= GAIN_MAX, detail)
    busy = findings(bench, "busy", [*script, "busy"]) if wants("busy") else None
    if busy is not None:
        bench.check("busy-none", not busy.found, f"{brief(busy.found)}; busy {busy.whole['busy_ns'] / max(busy.whole['span_ns'], 1):.1%}")
    llama = findings(bench, "llama", [*script, "llama"]) if wants("llama") else None
    if llama is not None:
        found = llama.found
        first = found[0]["rule"] if found else "none"
        bench.check("llama-first", first == "launch_bound", f"{brief(found)}: {found[0]['title'][:TITLE_CHARACTERS] if found else ''}")
        lines = [f"{line['file']}:{line['line']}" for line in found[0]["lines"]] if found else []
        bench.check("llama-line", f"torch_insight.py:{line_of(path, 'decode')}" in lines, f"names {lines}")
    if wants("modules"):
        modules(bench, script)
