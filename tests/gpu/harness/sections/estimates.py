"""Estimates from windows against the truth: schedules drawn over full recordings, so that clocks and caches are those of the same run.

`scripts/check-windows` judges the recordings that --keep-traces keeps more thoroughly; here a few schedules show whether anything is wrong."""

import json
import subprocess

SECONDS, SCHEDULES = 15, 6
PLAN = "10ms/100ms"
# The least share of a kernel's time that is judged, and how often intervals must hold.
SHARE_MIN, HOLDS_MIN = 0.005, 0.90


def record(bench, name, command, lines=""):
    """A full recording's folder; None with a FAIL row where the program does not end well."""
    folder = bench.scratch / "traces" / bench.section / name
    full = [str(part) for part in [bench.gputrace, "run", "-o", folder, "--", *command]]
    done = subprocess.run(full, input=lines.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=bench.limit(150), check=False)
    bench.keep(f"{name}.err", done.stderr.decode(errors="replace"))
    if not bench.check(f"{name}-exit", done.returncode == 0, f"exit {done.returncode} {done.stderr[-200:]!r}" if done.returncode else "exit 0"):
        return None
    return folder


def report(bench, folder, *options):
    done = subprocess.run([bench.gputrace, "report", "--json", *options, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=bench.limit(150), check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def compare(bench, name, folder):
    """How many (kernel, schedule) pairs there are, and how many of them lie in their intervals."""
    truth = report(bench, folder)
    if not bench.check(f"{name}-full", truth and truth["device_times"] in ("full", "partial") and "estimate" not in truth, f"{(truth or {}).get('timed_operations')} operations with times"):
        return 0, 0
    true = {row["full_name"]: row["total_ns"] or 0 for row in truth["kernels"]}
    least = SHARE_MIN * sum(true.values())
    pairs = hold = 0
    errors, unmeasured = [], []
    for seed in range(1, SCHEDULES + 1):
        shown = report(bench, folder, "--windows", f"{PLAN},{seed}")
        if not shown:
            bench.row(f"{name}-windows", "FAIL", "report --windows failed")
            return pairs, hold
        for row in shown["kernels"]:
            estimate = row["estimate"]
            # What nothing like it was timed of is in the truth and not in the estimate.
            unmeasured_ns = estimate["unmeasured_calls"] * (row["mean_ns"] or 0)
            if true.get(row["full_name"], 0) < least or estimate["unmeasured_calls"] > 0.02 * row["calls"]:
                continue
            pairs += 1
            hold += abs(estimate["total_ns"] + unmeasured_ns - true[row["full_name"]]) <= estimate["error_ns"] + 1
        whole = shown["estimate"]
        errors.append(whole["error_ns"] / max(whole["total_ns"], 1))
        unmeasured.append(whole["unmeasured_calls"] / max(shown["executed_operations"], 1))
    share = hold / max(pairs, 1)
    detail = f"{hold} of {pairs} kernels in their intervals ({share:.1%}); the total is known to ±{sum(errors) / len(errors):.2%}, {sum(unmeasured) / len(unmeasured):.2%} of the operations without an estimate"
    bench.row(f"{name}-intervals", "INFO", detail)
    return pairs, hold


def live(bench, command, lines):
    """The same program by windows: what its estimate rests on, and what windows lose."""
    folder = bench.scratch / "traces" / bench.section / "live"
    full = [str(part) for part in [bench.gputrace, "run", "--device-times", f"windows={PLAN}", "-o", folder, "--", *command]]
    done = subprocess.run(full, input=lines.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=bench.limit(150), check=False)
    shown = report(bench, folder) if done.returncode == 0 else None
    if not bench.check("live-exit", bool(shown), f"exit {done.returncode} {done.stderr[-200:]!r}"):
        return
    whole = shown["estimate"]
    bench.keep("live.json", json.dumps(shown, indent=1))
    lost, all_in = whole["window_operations_lost"], whole["window_operations"]
    bench.check("live-loss", all_in > 0 and lost <= 0.01 * all_in, f"{lost} of {all_in} operations in windows without times")
    missing = whole["unmeasured_calls"] / max(shown["executed_operations"], 1)
    detail = f"{whole['total_ns'] / 1e9:.3f} s ±{whole['error_ns'] / max(whole['total_ns'], 1):.2%} from {whole['windows']} windows (and {whole['triggered_windows']} triggered); {missing:.2%} of the operations without an estimate"
    bench.row("live-estimate", "INFO", detail)


def run(bench):
    lines = f"measure 1 {SECONDS * 1000} full\n"
    programs = {workload: (bench.script("in_process.py", workload), lines) for workload in ("small", "llama", "graph")}
    # Replays of graphs execute ten times as many operations.
    programs["graph"] = (programs["graph"][0], f"measure 1 {SECONDS * 200} full\n")
    programs["server"] = (bench.script("torch_server.py", "nvtx", "--requests", "12000"), "")
    pairs = hold = 0
    for name, (command, words) in programs.items():
        if not bench.wants(name):
            continue
        folder = record(bench, name, command, words)
        if folder:
            more, held = compare(bench, name, folder)
            pairs, hold = pairs + more, hold + held
    bench.check("pooled", pairs > 100 and hold >= HOLDS_MIN * pairs, f"{hold} of {pairs} (kernel, schedule) pairs in their intervals")
    if bench.wants("live"):
        live(bench, programs["small"][0], f"measure 1 {SECONDS * 500} full\n")
