"""A deterministic program under torch.profiler and under gputrace, in separate runs.

Kernel calls by name and copies by direction must be equal, the total kernel time within 3 %. Runs alternate and nothing
else runs meanwhile; each side's time is the median of its runs."""

import json
import statistics
from collections import defaultdict

from .. import reports

RUNS = 3
TIME_TOLERANCE = 0.03
PROFILER_DIRECTIONS = {"HtoD": "cpu_to_gpu", "DtoH": "gpu_to_cpu", "DtoD": "gpu_to_gpu", "PtoP": "peer_to_peer"}


def read_profile(path, demangle):
    """(kernel calls by name, kernel ns, {direction: [calls, bytes]}, memsets) of a Chrome trace by torch.profiler."""
    calls, copies, memsets, kernel_ns = defaultdict(int), defaultdict(lambda: [0, 0]), 0, 0.0
    for event in json.loads(path.read_text(errors="replace"), strict=False)["traceEvents"]:
        kind = event.get("cat")
        if kind == "kernel":
            calls[demangle(event["name"])] += 1
            kernel_ns += event["dur"] * 1000
        elif kind == "gpu_memcpy":
            word = event["name"].split()[1] if len(event["name"].split()) > 1 else event["name"]
            direction = PROFILER_DIRECTIONS.get(word, word)
            copies[direction][0] += 1
            copies[direction][1] += int(event.get("args", {}).get("bytes", 0))
        elif kind == "gpu_memset":
            memsets += 1
    return dict(calls), kernel_ns, dict(copies), memsets


def run(bench):
    command = bench.script("torch_train.py", "--steps", "20", "--width", "1024", "--batch", "32", "--layers", "4")
    profiles, ours, reference, report = [], [], None, None
    for i in range(RUNS):
        path = bench.scratch / f"truth-{i}.json"
        profiled = bench.bare(f"profiler-{i}", [*command, "--profile", path])
        if profiled.code == 0 and path.exists():
            reference = read_profile(path, bench.demangle)
            profiles.append(reference[1])
        else:
            bench.row("profiler", "FAIL" if not i else "INFO", f"torch.profiler run: {profiled.ending()} {profiled.stderr[-300:]!r}")
        outcome, folder = bench.traced(f"truth-{i}", command)
        found = bench.report(f"truth-{i}", folder)
        if outcome.code == 0 and found:
            report = found
            ours.append(reports.kernel_ns(found))
        else:
            bench.row("gputrace", "FAIL", f"{outcome.ending()} {outcome.stderr[-300:]!r}")
        if profiled.code == 0 and outcome.code == 0:
            bench.check(f"losses-{i}", outcome.stdout == profiled.stdout, "equal" if outcome.stdout == profiled.stdout else "differ: the program is not deterministic")
        if not profiles and not ours:
            return
    client_run, client = bench.counted("truth", command, names=True)
    if not reference or not report:
        bench.row("truth", "FAIL", "one side is missing")
        return
    calls, _, copies, memsets = reference
    mine = reports.kernel_calls(report, bench.demangle)
    level, lines = reports.compare_names(calls, mine)
    bench.keep("names.txt", "\n".join(lines) + "\n\nboth sides:\n" + "\n".join(f"{calls.get(name, 0)} {mine.get(name, 0)} {name}" for name in sorted({*calls, *mine})))
    bench.check("names", level is not None, f"{len(calls)} kernel names, {sum(calls.values())} calls (ours {sum(mine.values())}), equal at level: {level}" + ("" if level == "exact" else f"; {lines[:3]}"))
    got = reports.transfers(report)
    bench.check("copies", got == copies, got if got == copies else f"{got}, torch.profiler {copies}")
    bench.check("memsets", reports.counts(report)["memsets"] == memsets, f"{reports.counts(report)['memsets']}, torch.profiler {memsets}")
    ratio = statistics.median(ours) / statistics.median(profiles)
    bench.check("kernel-time", abs(ratio - 1) <= TIME_TOLERANCE, f"ours/torch.profiler {ratio:.4f}: {[round(ns / 1e6, 2) for ns in ours]} ms and {[round(ns / 1e6, 2) for ns in profiles]} ms")
    if client:
        names = defaultdict(int)
        for name, (number, _) in client["names"].items():
            names[bench.demangle(name)] += number
        level, lines = reports.compare_names(names, mine)
        bench.row("client", "INFO", f"bare CUPTI client: kernel_ms={client['kernel_ns'] / 1e6:.2f} names equal at level: {level} {lines[:2]} {reports.client_counts(client)}")
    else:
        bench.row("client", "INFO", f"no totals: {client_run.ending() if client_run else 'not built'}")
