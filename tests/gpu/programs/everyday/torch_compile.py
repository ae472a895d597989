"""torch.compile: torch_compile.py default|graphs: training steps with Inductor's kernels, or inference from CUDA graphs."""
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from torch import nn

MODE = sys.argv[1]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 128)).to("cuda")
x = torch.randn(64, 128).to("cuda")


def train():
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    step = torch.compile(lambda batch: (model(batch).tanh() - batch).square().mean())
    for _ in range(8):
        optimizer.zero_grad()
        loss = step(x)
        loss.backward()
        optimizer.step()
    return loss.item()


def infer():
    compiled = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(8):
            total = compiled(x).sum().item()
    return total


print(MODE, f"{train() if MODE == 'default' else infer():.3g}")
