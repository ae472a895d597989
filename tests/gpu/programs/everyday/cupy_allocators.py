"""CuPy's allocators: cupy_allocators.py pool|async|none: its own pool, the driver's stream-ordered one, and none at all."""
import sys

import cupy

KIND = sys.argv[1]
if KIND == "async":
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
elif KIND == "none":
    cupy.cuda.set_allocator(None)
    cupy.cuda.set_pinned_memory_allocator(None)
total = 0.0
for number in range(30):
    x = cupy.arange(1 << (8 + number % 10), dtype=cupy.float64)
    y = x * 2 + 1
    total += float(y.sum())
    del x, y
cupy.cuda.Device().synchronize()
print(KIND, "total", total)
