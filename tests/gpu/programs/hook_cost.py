"""Steps of a workload of in_process.py for some seconds, as hook_cost of scripts/gpu-test measures a hook in it.

    hook_cost.py WORKLOAD SECONDS FOLDER

Touches FOLDER/ready once it is warm, and waits for FOLDER/go: processes that are compared load PyTorch at the same time, and work one
after the other. Prints STEPS and the number of steps and their mean time in microseconds.
"""
import sys
import time
from pathlib import Path

workload, seconds, folder = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
sys.argv = ["in_process.py", workload]
import in_process  # noqa: E402

step, warm_up = {"llama": in_process.llama}.get(workload, in_process.of_torch_bench)()
for _ in range(warm_up):
    step()
(folder / "ready").touch()
while not (folder / "go").exists():
    time.sleep(0.01)
begin, steps = time.monotonic(), 0
while time.monotonic() < begin + seconds:
    step()
    steps += 1
print("STEPS", steps, round((time.monotonic() - begin) / steps * 1e6, 1), flush=True)
