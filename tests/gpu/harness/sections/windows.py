"""Device times in windows: many PyTorch programs live through some thousand of them each; counts are the program's own, the share that has times is that of the windows, a kernel's mean time is that of a full run;
eight threads that make and replay graphs while CUPTI's kinds are switched up to a hundred times a second; budgets."""

import re
import statistics
import subprocess
import time

from . import control

# A training loop with copies of its own each step, and how many of each it made.
COPIES = """
import sys, time, torch
layers = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(layers.parameters(), 1e-3)
host, x = torch.randn(64, 256).pin_memory(), torch.randn(64, 256, device="cuda")
torch.cuda.synchronize()
steps, until = 0, time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    x.copy_(host, non_blocking=True)
    optimizer.zero_grad()
    loss = layers(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    x.cosh()
    if steps % 8 == 0:
        loss.item()
    steps += 1
torch.cuda.synchronize()
print(f"DID steps={steps}")
"""
# As many at once, so that each has to wait for the device too.
STRESSED = 10
# Of a kernel with at least this share of the time, and with this many times in both runs.
SHARE_MIN, TIMED_MIN = 0.01, 50


def counts(bench, name, report):
    """What windows a run had, and what CUPTI took to switch."""
    switched = report.get("switched_times") or {}
    windows = switched.get("windows") or {}
    opened = windows.get("opened", 0)
    on_us, off_us = (windows.get(key, 0) / max(opened, 1) / 1e3 for key in ("switch_on_ns", "switch_off_ns"))
    bench.row(f"{name}-switches", "INFO", f"{opened} windows, {windows.get('triggered', 0)} triggered; on {on_us:.1f} us, off {off_us:.1f} us each on average")
    return opened


def threads(bench, name, lengths, graph_times, seconds, environment=()):
    """Eight threads launch, copy, replay graphs and make some: nothing hangs, nothing is lost, nothing is misattributed."""
    program = ["env", *environment, bench.programs["control_threads"]]
    running = control.Running(bench, name, ["--device-times", f"windows={lengths}", "--graph-times", graph_times], program)
    if not bench.check(f"{name}-ready", running.is_ready(), running.err.read_text(errors="replace")[-300:]):
        running.end()
        return
    begin = time.monotonic()
    time.sleep(seconds)
    # A session whose service thread hangs in CUPTI does not answer.
    answer, took = running.ctl("status")
    bench.check(f"{name}-alive", answer and took < 5000, f"status after {time.monotonic() - begin:.1f} s took {took:.0f} ms")
    answer, took = running.ctl("set", "device-times=windows")
    bench.check(f"{name}-service", answer and not answer["unanswered"], f"the service thread answers in {took:.0f} ms")
    code, did, report = running.end()
    control.judge(bench, name, code, did, report, False)
    if report:
        share = report["timed_operations"] / max(report["executed_operations"], 1)
        bench.check(f"{name}-some", counts(bench, name, report) > seconds and 0 < share < 0.9, f"{share:.1%} of {report['executed_operations']} operations have times, in {lengths}")


def training(bench, name, options, seconds):
    """A PyTorch loop; the report, and how many steps a second it made."""
    script = bench.scratch / "windows_training.py"
    script.write_text(control.TRAINING)
    running = control.Running(bench, name, options, [bench.python, script])
    if not bench.check(f"{name}-ready", running.is_ready(), running.err.read_text(errors="replace")[-300:]):
        running.end()
        return None, 0
    time.sleep(seconds)
    code, did, report = running.end()
    counted = sum(row["calls"] for row in report["kernels"] if "cosh" in row["name"] + row["full_name"]) if report else None
    good = code == 0 and did and report and counted == did["steps"] and report["complete"] and not report["dropped"] and report["device_only"] == 0
    bench.check(f"{name}-counts", good, f"exit {code}, {did}, {counted} counted" + (f"; dropped {report['dropped']}, device-only {report['device_only']}" if report else ""))
    return (report, did["steps"]) if good else (None, 0)


def means(report):
    """Mean times of the kernels that matter, by name; only of calls that were timed."""
    total = sum(row["mean_ns"] * row["timed_calls"] for row in report["kernels"] if row["timed_calls"])
    rows = [row for row in report["kernels"] if row["timed_calls"] >= TIMED_MIN and row["mean_ns"] * row["timed_calls"] >= total * SHARE_MIN]
    return {row["full_name"]: (row["mean_ns"], row["mean_ns"] * row["timed_calls"] / total) for row in rows}


def torch(bench):
    seconds = 12
    full, _ = training(bench, "windows-torch-full", ["--device-times", "full"], seconds)
    report, _ = training(bench, "windows-torch", ["--device-times", "windows=10ms/100ms"], seconds)
    if not full or not report:
        return
    executed, timed = report["executed_operations"], report["timed_operations"]
    opened = counts(bench, "windows-torch", report)
    # Exponential gaps: the number of windows varies as its root; triggered ones and the warm-up come on top.
    bench.check("windows-torch-share", 0.05 <= timed / executed <= 0.2 and opened >= seconds * 5, f"{timed / executed:.2%} of {executed} operations are timed, 10% of the time is in windows")
    of_full, of_windows = means(full), means(report)
    shared = sorted(of_full.keys() & of_windows.keys(), key=lambda kernel: -of_full[kernel][1])
    ratios = [of_windows[kernel][0] / of_full[kernel][0] for kernel in shared]
    weighted = sum(ratio * of_full[kernel][1] for kernel, ratio in zip(shared, ratios)) / max(sum(of_full[kernel][1] for kernel in shared), 1e-9)
    detail = f"{len(shared)} kernels; mean time in windows / full: weighted {weighted:.3f}, median {statistics.median(ratios) if ratios else 0:.3f}, {min(ratios, default=0):.3f} to {max(ratios, default=0):.3f}"
    bench.check("windows-torch-means", len(shared) >= 3 and abs(weighted - 1) < 0.05, detail)


def stress(bench, seconds):
    """PyTorch programs side by side, with a window every 10 ms: as a bare client that switched kernels and copies, all would have crashed."""
    script = bench.scratch / "windows_copies.py"
    script.write_text(COPIES)
    ways = [["--stacks", "python"], ["--stacks", "none"], ["--stacks", "python,native"], ["--torch-ops"], ["--budget", "5%", "--graph-times", "auto"]]
    running = []
    for number in range(STRESSED):
        out = bench.scratch / "traces" / bench.section / f"stress-{number}"
        out.parent.mkdir(parents=True, exist_ok=True)
        options = ways[number % len(ways)]
        lengths = [] if "--budget" in options else ["--device-times", "windows=2ms/10ms"]
        command = [bench.gputrace, "run", "-o", out, *lengths, *options, "--", bench.python, script, str(seconds)]
        running.append((out, " ".join(options), subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
    lived, opened, wrong = 0, [], []
    for number, (out, how, child) in enumerate(running):
        text = child.communicate(timeout=bench.limit(seconds + 120))[0]
        did = re.search(r"DID steps=(\d+)", text)
        report = bench.report(f"stress-{number}", out) if child.returncode == 0 and did else None
        if not report:
            wrong.append(f"{how}: exit {child.returncode} {text[-150:]!r}")
            continue
        lived += 1
        opened.append(((report.get("switched_times") or {}).get("windows") or {}).get("opened", 0))
        steps = int(did[1])
        counted = sum(row["calls"] for row in report["kernels"] if "cosh" in row["name"] + row["full_name"])
        up = [row for row in report["transfers"] if row["direction"] == "cpu_to_gpu"]
        calls, timed = (sum(row[key] for row in up) for key in ("calls", "timed_calls"))
        if counted != steps or not report["complete"] or report["dropped"] or report["device_only"] > 1e-5 * report["executed_operations"] or calls < steps or timed != calls:
            wrong.append(f"{how}: {steps} steps, {counted} counted, copies {calls}, timed {timed}, dropped {report['dropped']}, device-only {report['device_only']}")
    bench.check("windows-stress", lived == STRESSED and not wrong, f"{lived} of {STRESSED} lived for {seconds} s with {min(opened, default=0)} to {max(opened, default=0)} windows; {'; '.join(wrong)[:900]}")


def budgets(bench):
    for percent in ("1%", "10%"):
        name = f"budget-{percent[:-1]}"
        report, _ = training(bench, name, ["--budget", percent, "--graph-times", "auto"], 10)
        if not report:
            continue
        budget = report["budget"]
        wall = max(budget["wall_ns"], 1)
        parts = ", ".join(f"{part} {budget[part + '_ns'] / wall:.2%}" for part in ("hooks", "records", "switches"))
        cost = sum(budget[part + "_ns"] for part in ("hooks", "records", "switches"))
        detail = f"allowed {budget['allowed_ns'] / wall:.2%}, measured {cost / wall:.2%} ({parts}), {budget['windows']} windows, least for {budget['least_ns'] / wall:.0%}, kept {budget['is_kept']}"
        # 1 % is less than hooks and callbacks alone cost a launch-bound loop; then windows are at their least.
        bench.check(name, budget["is_kept"] or budget["least_ns"] > 0, detail)


def run(bench):
    if bench.wants("nodes"):
        threads(bench, "windows-nodes", "10ms/100ms", "node", 12)
    if bench.wants("threads"):
        threads(bench, "windows-graphs", "10ms/100ms", "graph", 8)
        threads(bench, "windows-dense", "2ms/10ms", "node", 12)
        threads(bench, "windows-unflushed", "2ms/10ms", "node", 6, ["GPUTRACE_DELIVERY=full"])
    if bench.wants("torch"):
        torch(bench)
    if bench.wants("stress"):
        stress(bench, 25)
    if bench.wants("budgets"):
        budgets(bench)
