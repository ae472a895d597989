"""Training steps in blocks, as its stdin asks: "steps N" runs N launch-bound steps and prints in microseconds the time that a quarter of them stay below: what else the machine does only adds, "busy S" multiplies matrices for
S seconds. Ends with its stdin. torch_blocks.py MIB holds so much memory from the beginning; prints "ready PID" once it works."""

import os
import sys
import time

import torch
from torch import nn

torch.manual_seed(1)
held = torch.ones(int(sys.argv[1]) << 20, dtype=torch.uint8, device="cuda")
model = nn.Sequential(*[layer for _ in range(40) for layer in (nn.Linear(64, 64), nn.ReLU())]).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-3, foreach=False)
batch = torch.randn(32, 64, device="cuda")
left = torch.randn(8192, 8192, device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    model(batch).pow(2).mean().backward()
    optimizer.step()


for _ in range(30):
    step()
torch.cuda.synchronize()
print(f"ready {os.getpid()}", flush=True)
for line in sys.stdin:
    what, number = line.split()
    begin = time.perf_counter()
    if what == "steps":
        moments = [begin]
        for _ in range(int(number)):
            step()
            moments.append(time.perf_counter())
        torch.cuda.synchronize()
        times = sorted(after - before for before, after in zip(moments, moments[1:]))
        print(f"block {times[len(times) // 4] * 1e6:.3f}", flush=True)
    else:
        while time.perf_counter() < begin + float(number):
            for _ in range(10):
                torch.mm(left, left)
            torch.cuda.synchronize()
        print("block 0", flush=True)
