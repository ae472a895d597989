"""Spans that are sent while a program runs are those that its trace has, and a live back end costs nothing that can be measured."""

import statistics
import sys
from pathlib import Path

from ..build import PROGRAMS
from ..overhead import REPEATS, Group, Overhead
from ..receiver import Receiver
from .delivery import rounds_of
from .server import spans_of

# As noisy as two runs of the same thing are.
COST_MOST = 1.02


def same(bench, name, command):
    receiver = Receiver(bench.scratch)
    try:
        outcome, folder = bench.traced(name, command, "--otlp", receiver.url, "--all", limit_s=120)
        traces = sorted(Path(folder).rglob("trace.gputrace"))
        if not bench.check(f"{name}-exit", outcome.code == 0 and traces, f"{outcome.ending()} {outcome.stderr[-300:] if outcome.code else ''}"):
            return
        exported = spans_of(bench, name, traces[0])
        if exported is None:
            return
        want = {span["spanId"]: (span["traceId"], span.get("parentSpanId", ""), span["name"]) for span in exported}
        receiver.waits_for(len(want))
        wrong = [(key, want.get(key), receiver.spans.get(key)) for key in want.keys() | receiver.spans.keys() if want.get(key) != receiver.spans.get(key)]
        behind = receiver.name if receiver.agent else f"our receiver (nothing before it: {receiver.why_no_agent})"
        bench.check(f"{name}-spans", not wrong and not receiver.twice, f"{len(receiver.spans)} spans read from {behind}, {len(want)} in the trace, {receiver.twice} twice; differing {len(wrong)}: {wrong[:3]}")
        bench.check(f"{name}-metrics", receiver.metric_requests > 0, f"{receiver.metric_requests} requests of metrics")
    finally:
        receiver.close()


def cost(bench):
    seconds = min(bench.overhead_seconds, bench.time_left() - 40)
    if seconds < 60:
        bench.row("cost", "SKIP", "no time left")
        return
    receiver = Receiver(bench.scratch)
    try:
        measured = Overhead(bench.gputrace, sys.executable, bench.programs, bench.scratch, PROGRAMS / "torch_bench.py")
        measured.otlp_url = receiver.url
        command = [sys.executable, PROGRAMS / "torch_bench.py", "--repeats", REPEATS, "--workloads", "small"]
        measured.run([Group("small", command, {"full": 1, "otlp": 1}, 1)], seconds, lambda line: bench.row("progress", "INFO", line))
    finally:
        receiver.close()
    for workload, found in rounds_of(measured.samples, "otlp", "full").items():
        found.sort()
        middle, low, high = statistics.median(found), found[len(found) // 4], found[-1 - len(found) // 4]
        verdict = "FAIL" if not receiver.spans else "INFO" if len(found) < 4 else "PASS" if middle <= COST_MOST or low <= 1 else "FAIL"
        bench.row(f"cost-{workload}", verdict, f"with a live back end/without {middle:.3f} [{low:.3f} to {high:.3f}], {len(found)} rounds; {len(receiver.spans)} spans came")
    for failure in measured.failures:
        bench.row("failure", "FAIL", failure)


def run(bench):
    same(bench, "train", bench.script("torch_train.py", "--steps", "5"))
    same(bench, "server", bench.script("torch_server.py", "nvtx", "--requests", "40"))
    cost(bench)
