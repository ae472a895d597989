"""Kernels on two devices, copies between them, and ranks of which one has more work."""

from .. import machine
from . import memory_ways
from .insight import brief, findings
from .programs import check_program


def ranks(bench):
    """The first finding names the rank that the other waits for; the mended twin has none of that rule."""
    script = bench.script("torch_ranks.py")
    uneven = findings(bench, "ranks", script)
    even = findings(bench, "ranks-mended", [*script, "mended"])
    if uneven is None or not uneven.found or even is None:
        bench.check("ranks-first", False, brief(uneven.found) if uneven else "the program did not run")
        return
    first = uneven.found[0]
    bench.check("ranks-first", first["rule"] == "slow_rank" and "rank 1" in first["title"], f"{brief(uneven.found)}: {first['title']}")
    bench.check("ranks-mended", not any(one["rule"] == "slow_rank" for one in even.found), brief(even.found))
    if uneven.loop_s and even.loop_s:
        gained = uneven.loop_s - even.loop_s
        bench.row("ranks-gain", "INFO", f"by the stopwatch {gained:.4f} s of {uneven.loop_s:.4f}, {first['saves_ns'] / 1e9:.4f} s by the finding")


# What two_gpus.cu copies: (from, to) -> copies, bytes.
PEER_COPIES = {(0, 1): (6, 5 * (4 << 20) + 4096), (1, 0): (5, 5 * (4 << 20))}


def two_gpus(bench):
    report = check_program(bench, "two-gpus", [bench.programs["two_gpus"]])
    if not report:
        return
    pairs = [pair for transfer in report["transfers"] for pair in transfer.get("by_devices", [])]
    found = {(pair["source_ordinal"], pair["target_ordinal"]): (pair["calls"], pair["bytes"]) for pair in pairs}
    rates = ", ".join(f"{pair['source_ordinal']} to {pair['target_ordinal']}: {pair['bandwidth_mbps']} MB/s" for pair in pairs)
    bench.row("two-gpus-pairs", "PASS" if found == PEER_COPIES else "FAIL", f"{found}, {rates}")


def run(bench):
    if machine.gpu_count() < 2:
        bench.row("two", "SKIP", f"{machine.gpu_count()} GPU here, two needed")
        return
    bench.parallel({
        "two-gpus": lambda: two_gpus(bench),
        "torch-second-gpu": lambda: check_program(bench, "torch-second-gpu", bench.script("torch_train.py", "--device", "1", "--steps", "5")),
        "threads": lambda: check_program(bench, "threads", [bench.programs["threads"]]),
        "devices": lambda: memory_ways.devices(bench),
    })
    ranks(bench)
    for folded in sorted((bench.scratch / "traces" / "two" / "two-gpus").rglob("summary.txt")):
        bench.row("summary", "INFO", folded.read_text(errors="replace")[:500].replace("\n", " | "))
