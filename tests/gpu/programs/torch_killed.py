"""A steady PyTorch and Triton loop that ends badly: torch_killed.py ENDING COUNTERS SECONDS

ENDING is sigkill, sigterm, abort, exit (os._exit) or illegal (a kernel that writes to a bad address). COUNTERS is a
file of four numbers that outlives the process: launches of `steady` begun and returned, and CLOCK_MONOTONIC when the
loop began and at the last return.
"""
import mmap
import os
import subprocess
import sys
import time

import torch
import triton
import triton.language as tl

ENDING, SECONDS = sys.argv[1], float(sys.argv[3])


@triton.jit
def steady(pointer, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(pointer + offsets, tl.load(pointer + offsets, mask=inside) + 1, mask=inside)


@triton.jit
def bad_store(pointer, far, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK) + far
    tl.store(pointer + offsets, tl.zeros((BLOCK,), tl.float32))


file = open(sys.argv[2], "r+b")
counters = memoryview(mmap.mmap(file.fileno(), 32)).cast("Q")
x = torch.zeros(100_000, device="cuda")
weight = torch.randn(256, 256, device="cuda")


def launch():
    counters[0] += 1
    steady[(triton.cdiv(x.numel(), 1024),)](x, x.numel(), BLOCK=1024)
    counters[1] += 1
    counters[3] = time.monotonic_ns()


def step():
    launch()
    torch.mm(weight, weight)


for _ in range(20):
    step()
torch.cuda.synchronize()
print("started", flush=True)
counters[2] = time.monotonic_ns()
if ENDING == "illegal":
    for _ in range(200):
        step()
    torch.cuda.synchronize()
    counters[2] = time.monotonic_ns()
    for _ in range(3):
        launch()
    torch.cuda._sleep(100_000_000)  # So that what follows is accepted before the bad kernel runs.
    bad_store[(1,)](x, 1 << 42, BLOCK=128)
    try:
        for _ in range(5):
            launch()
    finally:
        torch.cuda.synchronize()  # Raises.
    sys.exit(4)
if ENDING in ("sigkill", "sigterm"):
    # From outside, so that it falls anywhere, in the middle of a launch too.
    subprocess.Popen(["/bin/sh", "-c", f"sleep {SECONDS}; kill -{ENDING[3:].upper()} {os.getpid()}"])
    SECONDS = 60.0
end = time.monotonic() + SECONDS
while time.monotonic() < end:
    for _ in range(50):
        step()
    torch.cuda.synchronize()  # A program that runs ahead of its device would measure the queue.
for _ in range(30):
    step()
if ENDING == "abort":
    os.abort()
os._exit(3 if ENDING == "exit" else 4)
