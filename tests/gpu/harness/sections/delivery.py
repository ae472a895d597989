"""What steady delivery costs: CUPTI made to deliver twenty times a second against full buffers only, alternating."""

import statistics
import sys
from collections import defaultdict

from .. import figures
from ..build import PROGRAMS
from ..overhead import REPEATS, Group, Overhead

# The workloads where a call costs most; a ratio above this in the median would be a cost that can be measured.
COST_MOST = 1.02


def rounds_of(samples, variant, base):
    """{workload: [variant/base of each round]}."""
    rounds = defaultdict(dict)
    for sample in samples:
        rounds[sample["workload"], sample["round"]][sample["variant"]] = sample["values"]
    found = defaultdict(list)
    for (workload, _), pair in rounds.items():
        if len(pair) == 2:
            found[workload].append(figures.ratio(pair[variant], pair[base]))
    return found


def run(bench):
    seconds = min(bench.overhead_seconds, bench.time_left() - 30)
    if seconds < 60 or not bench.programs.get("empty_kernels"):
        bench.row("delivery", "SKIP", "no time left, or empty_kernels was not built")
        return
    measured = Overhead(bench.gputrace, sys.executable, bench.programs, bench.scratch, PROGRAMS / "torch_bench.py")
    both = {"full": 1, "full-buffers": 1}
    plan = [
        Group("empty", [bench.programs["empty_kernels"], "6"], dict(both), 0.4),
        Group("small", [sys.executable, PROGRAMS / "torch_bench.py", "--repeats", REPEATS, "--workloads", "small"], dict(both), 0.6),
    ]
    measured.run(plan, seconds, lambda line: bench.row("progress", "INFO", line))
    for workload, found in rounds_of(measured.samples, "full", "full-buffers").items():
        found.sort()
        middle, low, high = statistics.median(found), found[len(found) // 4], found[-1 - len(found) // 4]
        verdict = "INFO" if len(found) < 4 else "PASS" if middle <= COST_MOST or low <= 1 else "FAIL"
        bench.row(workload, verdict, f"steady/full buffers {middle:.3f} [{low:.3f} to {high:.3f}], {len(found)} rounds")
    for failure in measured.failures:
        bench.row("failure", "FAIL", failure)
