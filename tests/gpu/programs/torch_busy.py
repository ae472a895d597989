"""Multiplies matrices in PyTorch on device 0 until its stdin ends, and holds MIB of memory. torch_busy.py MIB; prints "ready PID" once it works."""

import os
import select
import sys

import torch

held = torch.ones(int(sys.argv[1]) << 20, dtype=torch.uint8, device="cuda")
left = torch.randn(4096, 4096, device="cuda")
right = torch.randn(4096, 4096, device="cuda")
out = torch.empty_like(left)
torch.mm(left, right, out=out)
torch.cuda.synchronize()
print(f"ready {os.getpid()}", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(20):
        torch.mm(left, right, out=out)
    torch.cuda.synchronize()
