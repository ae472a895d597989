"""Calls that fail, from lines of Python that the report must name: an allocation, a launch, a module, a context.

Prints one line of JSON: the name of each failing line's mark and its line number. CPython 3.8 to 3.14.
"""

import ctypes
import inspect
import json

CUDA = ctypes.CDLL("libcuda.so.1")
LINES = {}


def here():
    return inspect.currentframe().f_back.f_lineno


def take(size):
    pointer = ctypes.c_uint64()
    LINES["take"] = here() + 1
    return CUDA.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))


def load():
    module = ctypes.c_void_p()
    LINES["load"] = here() + 1
    return CUDA.cuModuleLoad(ctypes.byref(module), b"/nowhere/model.cubin")


def make():
    context = ctypes.c_void_p()
    LINES["make"] = here() + 1
    return CUDA.cuCtxCreate_v2(ctypes.byref(context), 0, 77)


def main():
    assert CUDA.cuInit(0) == 0
    context = ctypes.c_void_p()
    assert CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert CUDA.cuCtxSetCurrent(context) == 0
    for _ in range(3):
        assert take(1 << 50) == 2
    assert load() == 301
    assert make() == 101
    assert CUDA.cuCtxSynchronize() == 0
    print(json.dumps(LINES))


main()
