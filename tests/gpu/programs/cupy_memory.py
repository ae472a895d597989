"""Holds and frees memory by CuPy's pools, and prints one line of JSON with what they count: cupy_memory.py pool|async"""
import json
import sys

import cupy

KIND = sys.argv[1]
pool = cupy.get_default_memory_pool()
if KIND == "async":
    pool = cupy.cuda.MemoryAsyncPool()
    cupy.cuda.set_allocator(pool.malloc)
held, most = [], 0
for turn in range(24):
    held.append(cupy.empty((turn % 7 + 1) << 20, dtype=cupy.uint8))
    if turn % 3 == 2:
        held.pop(0)
    if turn == 12:
        cupy.cuda.Device().synchronize()
        pool.free_all_blocks()
    most = max(most, pool.total_bytes())
# A kernel of CuPy's own name, by which it is recognised.
held[-1] += 1
cupy.cuda.Device().synchronize()
found = {"used": pool.used_bytes(), "total": pool.total_bytes(), "most": most}
print(json.dumps(found))
sys.stdout.flush()
# What the interpreter frees at its end is no part of it.
import os  # noqa: E402
import signal  # noqa: E402
os.kill(os.getpid(), signal.SIGKILL)
