"""PyTorch's allocators: torch_allocators.py expandable|async|pluggable LIBRARY: tensors of many sizes, made and freed on two streams."""
import os
import sys

KIND = sys.argv[1]
options = {"expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}.get(KIND)
if options:
    # The first is the older name; either may be the one that is read.
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = options
import torch

if KIND == "pluggable":
    allocator = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[2], "take", "give_back")
    torch.cuda.memory.change_current_allocator(allocator)
total = torch.zeros((), device="cuda", dtype=torch.float64)
side = torch.cuda.Stream()
for number in range(40):
    x = torch.full((1 << (8 + number % 14),), 1.0, device="cuda")
    total += x.sum()
    if number % 4 == 0:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
        torch.cuda.current_stream().wait_stream(side)
        total += y.sum()
    del x
torch.cuda.synchronize()
expandable = KIND == "expandable" and any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot())
print(KIND, torch.cuda.memory.get_allocator_backend(), "expandable", expandable, "total", total.item())
