"""The kernel that the Triton programs share; Triton reads its source from a file."""
import triton
import triton.language as tl


@triton.jit
def add_one(pointer, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(pointer + offsets, tl.load(pointer + offsets, mask=inside) + 1, mask=inside)
