"""A program with a CUPTI client of its own (cupti_user.c), untraced and traced: every line that it prints must be the same.

It prints counts of callbacks by function, of records by kind and name, and whether times lie where its own clock has
them, so that equal text means an equal CUPTI. Our own counts are held against what it did by hand.
"""

import difflib
import os
import shutil

from . import machine, reports
from .sections.programs import verdict

SCENARIOS = ("callbacks", "activity", "kernel", "realtime", "ticks", "plain", "again", "second", "finalize")


def information(text):
    return "; ".join(line[5:] for line in text.splitlines() if line.startswith("INFO "))


def warnings(report):
    return [notice["text"] for notice in report.get("notices") or [] if notice.get("severity") == "warning"]


def difference(want, got):
    lines = [line for line in difflib.unified_diff(want.splitlines(), got.splitlines(), lineterm="", n=0) if not line.startswith(("---", "+++", "@@"))]
    return f"{len(lines)} lines: " + " / ".join(line.strip() for line in lines[:8])


def environment():
    # `later` must use the copy that is mapped; where none is, this one.
    return {"CUPTI_CLIENT_LIB": machine.toolkit_cupti(), "CUPTI_USER_RUNTIME": machine.runtime_library()}


def skip_unbuilt(bench, name):
    why = next((text for text in bench.builder.optional_failures.values() if text), "nothing to link to")
    bench.row(name, "SKIP", f"was not built: {why[-300:]}")


def compare(bench, name, command, shared=True, env=None):
    """One scenario; `shared` says whether device times are promised, else host times and a word about it are."""
    if None in command:
        skip_unbuilt(bench, name)
        return
    env = {**environment(), **(env or {})}
    bare = bench.bare(name, command, 60, env)
    bench.row(f"{name}-untraced", "INFO", f"{bare.ending()} {information(bare.stderr)}")
    if bare.code != 0:
        bench.row(name, "SKIP", f"does not run here untraced: {bare.ending()} {bare.stderr[-300:]!r} {bare.stdout[-200:]!r}")
        return
    outcome, folder = bench.traced(name, command, env=env, limit_s=60 + 6 * bare.seconds)
    same = outcome.stdout == bare.stdout
    bench.check(f"{name}-exit", outcome.code == bare.code, f"{outcome.ending()}, untraced {bare.ending()}; {information(outcome.stderr)}" + ("" if outcome.code == bare.code else f" {outcome.stderr[-300:]!r}"))
    bench.check(f"{name}-output", same, f"{len(bare.stdout.splitlines())} lines equal" if same else difference(bare.stdout, outcome.stdout))
    hand = reports.expected(bare.stdout)
    report = bench.report(name, folder) if outcome.code is not None else None
    if not report or not hand:
        return
    said = warnings(report)
    if shared:
        verdict(bench, f"{name}-counts", report, hand, None, f" [warnings: {said}]" if said else "")
        bench.check(f"{name}-times", (report.get("device_time_coverage") or 0) >= 0.9999 and not said and not report.get("invalid_timing"), f"coverage {report.get('device_time_coverage')} untimed {report.get('untimed_operations')} invalid {report.get('invalid_timing')} warnings {said}")
    else:
        wrong = reports.differences(hand, reports.counts(report), ("launches", "captured_launches", "graph_launches"))
        covered = report.get("device_time_coverage") or 0
        bench.check(f"{name}-counts", not wrong and (said or covered > 0.9999), f"{'; '.join(wrong) or 'launches exact'}; coverage {covered}; said {said}")


def old_torch(bench):
    """A CUPTI inside a library, as in PyTorch's wheels up to 1.13: a file of that name and version is left alone."""
    host, library = (bench.programs.get(name) for name in ("cupti_library_host", "cupti_user_library"))
    if not library:
        skip_unbuilt(bench, "cupti-old-torch")
        return
    folder = bench.scratch / "old-torch"
    os.makedirs(f"{folder}/torch/lib", exist_ok=True)
    its = shutil.copy(library, f"{folder}/torch/lib/libtorch_cpu.so")
    with open(f"{folder}/torch/version.py", "w") as file:
        file.write("__version__ = '1.13.1+cu117'\n")
    compare(bench, "cupti-old-torch", [host, "activity", "later"], shared=False, env={"CUPTI_USER_LIBRARY": its})


def other_copy():
    """Another libcupti file than the toolkit's, of the same major version if there is one."""
    mine = machine.toolkit_cupti()
    others = [path for path in machine.same_files_once(machine.find_libraries("libcupti.so")) if mine and not same_content(path, mine)]
    return next((path for path in others if "cu13" in path or ".so.2025.3" in path), others[0] if others else None)


def same_content(one, other):
    return os.path.realpath(one) == os.path.realpath(other)


def jobs(bench):
    user, linked = (bench.programs.get(name) for name in ("cupti_user", "cupti_user_linked"))
    made = {}
    for scenario in SCENARIOS:
        for when in ("first", "later"):
            name = f"cupti-{scenario}-{when}"
            made[name] = lambda name=name, command=[user, scenario, when]: compare(bench, name, command)
    for scenario in ("callbacks", "activity"):
        made[f"cupti-linked-{scenario}"] = lambda scenario=scenario: compare(bench, f"cupti-linked-{scenario}", [linked, scenario, "later"])
    made["cupti-v2"] = lambda: compare(bench, "cupti-v2", [user, "v2", "later"], shared=False)
    made["cupti-old-torch"] = lambda: old_torch(bench)
    copy = other_copy()
    if copy:
        for when in ("first", "later"):
            made[f"cupti-other-copy-{when}"] = lambda when=when: compare(bench, f"cupti-other-copy-{when}", [user, "activity", when], shared=False, env={"CUPTI_USER_COPY": copy, "GPUTRACE_CUPTI": machine.toolkit_cupti()})
    else:
        made["cupti-other-copy"] = lambda: bench.row("cupti-other-copy", "SKIP", "there is one libcupti on this machine only")
    return made
