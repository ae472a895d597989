"""`--budget 1%`: what tracing costs where a budget is kept, each program its own control (recording and paused in turn, by `ctl`), and what the session
says of it itself; counts stay the program's own whatever was given up to keep it."""

import json
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from .. import build, inprocess, paired
from . import control, windows

RECORDED = "recorded"
STATES = {inprocess.BASE: None, RECORDED: {}}
# By workload: seconds, and processes at once. Those that keep the device busy run alone.
WORKLOADS = {"small": (110, 6), "llama": (110, 6), "graph": (35, 1), "gpu": (60, 1)}
# Steps and ms of a block, where a step takes long.
BLOCKS = {"gpu": (2, 100)}
BUDGET, ALLOWED, ALLOWED_HIGH = "1%", 1.010, 1.015
# Until the controller has found what to give up.
SETTLING_S = 12


def words(budget):
    """A session's own figures, in short."""
    wall = max(budget["wall_ns"], 1)
    parts = ", ".join(f"{part} {budget[part + '_ns'] / wall:.2%}" for part in ("hooks", "records", "switches"))
    cost = sum(budget[part + "_ns"] for part in ("hooks", "records", "switches"))
    states = ", ".join(f"{state} {budget.get(state + '_ns', 0) / wall:.0%}" for state in ("full", "unstacked", "counted", "least"))
    return f"{cost / wall:.2%} of {budget['allowed_ns'] / wall:.2%} by its own measurement ({parts}; {states}; {budget['windows']} windows), kept {budget['is_kept']}"


def in_one_process(bench, workload):
    seconds, processes = WORKLOADS[workload]
    until = time.monotonic() + bench.limit(seconds)
    command = [bench.python, build.PROGRAMS / "in_process.py", workload]
    reports = {}

    def measure(number):
        name = f"budget-{workload}-{number}"
        keep = lambda report: reports.__setitem__(number, report)
        return inprocess.measure(bench.gputrace, command, ["--budget", BUDGET, "--graph-times", "auto"], STATES, 1_000_000, number, bench.scratch, name, until, settling_s=SETTLING_S, keep=keep,
                                 block=BLOCKS.get(workload, (inprocess.STEPS_MIN, inprocess.BLOCK_MS)))

    with ThreadPoolExecutor(processes) as pool:
        measured = list(pool.map(measure, range(processes)))
    bench.keep(f"budget-{workload}.json", json.dumps([blocks for blocks, _ in measured]))
    bench.check(f"{workload}-processes", not any(wrong for _, wrong in measured), f"{[wrong for _, wrong in measured]}")
    found = {}
    # By the mean of a block's steps: windows come in bursts, which a quartile would leave out.
    for name, of_block in (("mean", statistics.fmean), ("quartile", inprocess.quartile)):
        effects = [paired.of_process([(block[1], of_block(block[4])) for block in blocks], inprocess.BASE) for blocks, _ in measured]
        found[name] = paired.pooled(effects).get(RECORDED)
    blocks = [block for blocks, _ in measured for block in blocks]
    if not bench.check(f"{workload}-measured", all(found.values()), f"{len(blocks)} blocks"):
        return
    base = sorted(statistics.fmean(block[4]) for block in blocks if block[1] == inprocess.BASE)
    mean = found["mean"]
    own = next((report["budget"] for report in reports.values() if report.get("budget")), None)
    bench.row(f"{workload}-own", "INFO", words(own) if own else "none")
    detail = f"{inprocess.effect(mean)} by the mean step, {inprocess.effect(found['quartile'])} by the quartile, of a step of {base[len(base) // 2] / 1e3:.0f} us; {len(blocks)} switches, {len(measured)} processes"
    bench.check(f"{workload}-ratio", mean["ratio"] <= ALLOWED and mean["high"] <= ALLOWED_HIGH or own and not own["is_kept"], detail)


def counts(bench):
    """A launch-bound loop under budgets: kernels are counted exactly, and the estimates are those of a full recording."""
    full, _ = windows.training(bench, "counts-full", ["--device-times", "full"], 8)
    for percent, seconds in (("0.5%", 25), ("2%", 20)):
        name = f"counts-{percent[:-1]}"
        report, steps = windows.training(bench, name, ["--budget", percent, "--graph-times", "auto"], seconds)
        if not report:
            continue
        bench.row(f"{name}-own", "INFO", words(report["budget"]))
        bench.row(f"{name}-left-out", "INFO", f"{report.get('counted_launches')} launches only counted, {report.get('unstacked_launches')} without a stack, of {report['launches']} in {steps} steps")
        if full:
            compare(bench, name, full, report)


def compare(bench, name, full, report):
    """Shares of the GPU time by line, of a full recording and of one under a budget."""
    shares = []
    for one in (full, report):
        lines = {(row["file"].rsplit("/", 1)[-1], row["line"]): (row.get("estimate") or {}).get("total_ns", row["charged_ns"] or 0) for row in one["lines"] if row.get("file")}
        total = sum(lines.values()) or 1
        shares.append({line: ns / total for line, ns in lines.items()})
    far = {line: (round(share, 4), round(shares[1].get(line, 0), 4)) for line, share in shares[0].items() if share > 0.02 and abs(shares[1].get(line, 0) - share) > 0.02}
    bench.check(f"{name}-lines", shares[0] and not far, f"{len(shares[0])} lines, those with 2 % of the time or more differ by 2 points at most; further: {far}")


def killed(bench):
    """A program that is killed while its launches are only counted says how many of them it cannot name."""
    script = bench.scratch / "budget_killed.py"
    script.write_text(control.TRAINING)
    running = control.Running(bench, "killed", ["--budget", "0.5%", "--graph-times", "auto"], [bench.python, script])
    if not bench.check("killed-ready", running.is_ready(), running.err.read_text(errors="replace")[-300:]):
        running.end()
        return
    time.sleep(20)
    # Not the collector, whose command line has the script's name too.
    subprocess.run(["pkill", "-9", "-f", f"^{bench.python} .*{script.name}"], check=False)
    running.child.wait(60)
    report = bench.report("killed", running.folder)
    bench.check("killed-report", report and report["launches"] > 0, f"{report and {key: report.get(key) for key in ('launches', 'counted_launches', 'unnamed_launches', 'complete', 'dropped')}}")


def run(bench):
    if bench.wants("counts"):
        bench.parallel({"counts": lambda: counts(bench), "killed": lambda: killed(bench)}, workers=2)
    for workload in WORKLOADS:
        if bench.wants(workload):
            in_one_process(bench, workload)
