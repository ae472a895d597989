"""Triton: a just-in-time compiled kernel launched by Triton's own launcher, on PyTorch tensors."""
import torch
import triton
import triton.language as tl


@triton.jit
def add_one(pointer, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(pointer + offsets, tl.load(pointer + offsets, mask=inside) + 1, mask=inside)


x = torch.zeros(10000, device="cuda")
for _ in range(50):
    add_one[(triton.cdiv(x.numel(), 1024),)](x, x.numel(), BLOCK=1024)  # LAUNCHES 50
print("sum", x.sum().item())
