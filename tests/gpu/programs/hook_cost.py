"""Steps of a workload of in_process.py for some seconds, in which hook_cost of scripts/gpu-test measures a hook.

    hook_cost.py WORKLOAD SECONDS FOLDER [BYPASS]

Touches FOLDER/ready once it is warm, and waits for FOLDER/go: processes that are compared load PyTorch at the
same time, and work one after the other. With BYPASS, the library of hook_bypass.c, some stretches of launches
go past the hook. Then it prints SEEN and five numbers: a hook's ns as the program sees it, half of its 95 %
interval, the number of differences it is made of, the number of launches, and the median ns from one to the
next.
"""
import statistics
import sys
import time
from pathlib import Path

workload, seconds, folder, library = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
sys.argv = ["in_process.py", workload]
import hook_bypass  # noqa: E402
import in_process  # noqa: E402

step, warm_up = {"llama": in_process.llama}.get(workload, in_process.of_torch_bench)()
for _ in range(warm_up):
    step()
(folder / "ready").touch()
while not (folder / "go").exists():
    time.sleep(0.01)
bypass = hook_bypass.HookBypass.of_this_process(library[0]) if library else None
if bypass:
    bypass.switch(True)
begin = time.monotonic()
while time.monotonic() < begin + seconds:
    step()
if bypass:
    bypass.switch(False)
    samples, ticks_per_ns = bypass.samples(), bypass.ticks_per_ns()
    ticks, half, known = hook_bypass.cost(samples)
    apart = statistics.median(ticks for ticks, _, _ in samples)
    print("SEEN", *(round(number / ticks_per_ns, 1) for number in (ticks, half)), known, len(samples), round(apart / ticks_per_ns), flush=True)
