"""Allocates as a program with a caching allocator does: memory_cached.py KERNEL cache|grows

The kernel of that name is launched, which is what a caching library is known by. Then four segments are allocated at one
line, and some time passes; with `grows`, another line allocates during all of that time. Nothing is freed.
"""

import ctypes
import sys
import time

CUDA = ctypes.CDLL("libcuda.so.1")
PTX = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry %s()\n{\nret;\n}\n"


def call(name, *arguments):
    status = getattr(CUDA, name)(*arguments)
    assert status == 0, (name, status)


def handle(name, *arguments):
    made = ctypes.c_void_p()
    call(name, ctypes.byref(made), *arguments)
    return made


def segment():
    assert CUDA.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(20 << 20)) == 0


def grow():
    assert CUDA.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(2 << 20)) == 0


CUDA.cuLaunchKernel.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
call("cuInit", 0)
call("cuCtxSetCurrent", handle("cuDevicePrimaryCtxRetain", 0))
module = handle("cuModuleLoadData", (PTX % sys.argv[1]).encode())
for _ in range(4):
    segment()
call("cuLaunchKernel", handle("cuModuleGetFunction", module, sys.argv[1].encode()), 1, 1, 1, 32, 1, 1, 0, None, None, None)
for _ in range(20):
    time.sleep(0.05)
    if sys.argv[2] == "grows":
        grow()
