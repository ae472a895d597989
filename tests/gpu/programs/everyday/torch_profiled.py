"""torch.profiler inside: a training loop profiled as tutorials do. With `plain` the same work runs without a profiler."""
import contextlib
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

PLAIN = "plain" in sys.argv
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x = torch.randn(32, 64).to("cuda")


def step():
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


step()
torch.cuda.synchronize()
with contextlib.nullcontext() if PLAIN else profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
    for _ in range(10):
        with record_function("step"):
            loss = step()
    torch.cuda.synchronize()
print("loss", f"{loss.item():.3g}")
if profiler:
    kernels = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA and event.name != "step"]
    print("kernels profiled", len(kernels))
