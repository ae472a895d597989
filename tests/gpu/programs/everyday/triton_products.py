"""Triton: a matrix product by tl.dot and a row softmax, checked against PyTorch."""
import torch
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        total += tl.dot(tl.load(a + rows[:, None] * n + inner[None, :]), tl.load(b + inner[:, None] * n + columns[None, :]))
    tl.store(c + rows[:, None] * n + columns[None, :], total)


@triton.jit
def softmax(x, y, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * n + columns, mask=columns < n, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * n + columns, values / tl.sum(values, 0), mask=columns < n)


torch.manual_seed(0)
n = 256
a, b = (torch.randn(n, n).half().to("cuda") for _ in range(2))
c = torch.empty(n, n, device="cuda")
y = torch.empty_like(c)
for _ in range(20):
    product[(n // 32, n // 32)](a, b, c, n, BLOCK=32)
    softmax[(n,)](c, y, n, BLOCK=n)
good = torch.allclose(c, a.float() @ b.float(), rtol=1e-2, atol=1e-1) and torch.allclose(y, c.softmax(1), atol=1e-5)
print("good", good)
