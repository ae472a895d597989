"""A small training loop of PyTorch whose process switches CUPTI's activity kinds: cupti_torch_switch.py LIBRARY HOW SECONDS.

HOW is a sum: 1 flushes before kinds go off, 2 after, 4 also has a subscriber, 8 switches kernels, 16 copies and fills. Prints switches and records, if it lives to the end.
"""
import ctypes
import os
import sys
import time

import torch

layers = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(layers.parameters(), 1e-3)
x = torch.randn(64, 256, device="cuda")


def step():
    optimizer.zero_grad()
    layers(x).pow(2).mean().backward()
    optimizer.step()


for _ in range(20):
    step()
torch.cuda.synchronize()
client = ctypes.CDLL(sys.argv[1])
client.torch_switch_count.restype = ctypes.c_ulong
status = client.torch_switch_start(int(sys.argv[2]))
if status:
    sys.exit(f"the client did not start: {status}")
until = time.monotonic() + float(sys.argv[3])
while time.monotonic() < until:
    step()
torch.cuda.synchronize()
print(client.torch_switch_count(0), "switches,", client.torch_switch_count(1), "records", flush=True)
os._exit(0)
