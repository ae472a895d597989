"""Capture ranges on the device: the runtime's and the driver's profiler calls, NVTX ranges of PyTorch, launches by their numbers. Of every
recorded launch there is a device time, and the switch inside the program takes the time that is printed."""

import json
import re
import subprocess

ROUNDS, PER_ROUND = 40, 10


def traced(bench, name, options, program):
    folder, log = bench.scratch / f"control-{name}", bench.log(name)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [bench.gputrace, "run", "-o", folder, *options, "--", *program]
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=bench.limit(90), check=False, text=True)
    log.write_text(done.stdout)
    shown = subprocess.run([bench.gputrace, "report", "--json", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    report = json.loads(shown.stdout) if shown.returncode in (0, 3) else None
    said = re.search(r"DID (.*)", done.stdout)
    return done.returncode, dict(pair.split("=") for pair in said[1].split()) if said else {}, report


def judge(bench, name, options, program, recorded, ranges):
    code, did, report = traced(bench, name, options, program)
    if not bench.check(f"{name}-exit", code == 0 and did and report, f"exit {code}, {did}"):
        return
    paused = (report.get("recording") or {}).get("paused_launches", 0)
    found, timed = report["launches"], report["timed_operations"]
    kernels = sum(row["calls"] for row in report["kernels"])
    right = found == recorded and found + paused == int(did["launches"])
    bench.check(f"{name}-launches", right, f"recorded {found} (expected {recorded}), paused {paused}, done {did['launches']}")
    bench.check(f"{name}-timed", timed >= recorded and kernels == recorded and report["device_only"] == 0, f"{timed} timed, {kernels} kernels, {report['device_only']} records without their call")
    seen = (report.get("recording") or {}).get("capture_ranges") or {}
    bench.check(f"{name}-ranges", [seen.get(key) for key in ("wanted", "begun", "ended")] == ranges, f"{seen}; begin of a range: {did}")


TORCH = """
import torch
x = torch.ones(64, device="cuda")
torch.cuda.synchronize()
done = 0
for step in range(20):
    if step == 7:
        torch.cuda.nvtx.range_push("step")
    for _ in range(10):
        x.add_(1)
    if step == 7:
        torch.cuda.nvtx.range_pop()
torch.cuda.synchronize()
print("DID launches=201")
"""


def run(bench):
    program = bench.programs["control_ranges"]
    repeat = ["--capture-range-end", f"repeat:{ROUNDS // 2}"]
    for how in ("runtime", "driver"):
        judge(bench, f"range-{how}", ["--capture-range", "cudaProfilerApi"], [program, how, ROUNDS], PER_ROUND, [1, 1, 1])
        judge(bench, f"range-{how}-repeat", ["--capture-range", "cudaProfilerApi", *repeat], [program, how, ROUNDS], ROUNDS // 2 * PER_ROUND, [ROUNDS // 2] * 3)
    judge(bench, "range-launches", ["--capture-range", "launches:101-250"], [program, "none", ROUNDS], 150, [1, 1, 1])
    judge(bench, "range-first", ["--capture-range", "launches:1-1"], [program, "none", ROUNDS], 1, [1, 1, 1])
    script = bench.scratch / "control_nvtx.py"
    script.write_text(TORCH)
    judge(bench, "range-nvtx", ["--capture-range", "nvtx:step"], [bench.python, script], 10, [1, 1, 1])
