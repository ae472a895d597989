"""Kernels on two devices, copies between them."""

from .. import machine
from .programs import check_program


def run(bench):
    if machine.gpu_count() < 2:
        bench.row("two", "SKIP", f"{machine.gpu_count()} GPU here, two needed")
        return
    bench.parallel({
        "two-gpus": lambda: check_program(bench, "two-gpus", [bench.programs["two_gpus"]]),
        "torch-second-gpu": lambda: check_program(bench, "torch-second-gpu", bench.script("torch_train.py", "--device", "1", "--steps", "5")),
        "threads": lambda: check_program(bench, "threads", [bench.programs["threads"]]),
    })
    for folded in sorted((bench.scratch / "traces" / "two" / "two-gpus").rglob("summary.txt")):
        bench.row("summary", "INFO", folded.read_text(errors="replace")[:500].replace("\n", " | "))
