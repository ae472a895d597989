"""Launches as its standard input asks: for a line N, a hundred times with a grid of N blocks, and answers "done".

An argument is the folder of an engine that stands for PyTorch's (`torch_engine.cpp`): the launches are then in an
operator of it, and a line "observers" is answered with how many it has. The driver is reached by ctypes alone.
"""

import ctypes
import os
import sys

PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry kernel()\n{\n// sim.duration_ns = 1000\nret;\n}\n"
CUDA = ctypes.CDLL("libcuda.so.1")
CUDA.cuLaunchKernel.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3


def kernel():
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    for status in (
        CUDA.cuInit(0),
        CUDA.cuDeviceGet(ctypes.byref(device), 0),
        CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        CUDA.cuCtxSetCurrent(context),
        CUDA.cuModuleLoadData(ctypes.byref(module), PTX),
        CUDA.cuModuleGetFunction(ctypes.byref(function), module, b"kernel"),
    ):
        assert status == 0, status
    return function


def launches(function, blocks):
    for _ in range(100):
        assert CUDA.cuLaunchKernel(function, blocks, 1, 1, 32, 1, 1, 0, None, None, None) == 0


def main():
    engine = None
    if len(sys.argv) > 1:
        engine = ctypes.CDLL(os.path.join(sys.argv[1], "libtorch_python.so"))
        engine.range_begin.restype = ctypes.c_void_p
        engine.range_end.argtypes = [ctypes.c_void_p]
    function = kernel()
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "observers\n":
            print(engine.observers(), flush=True)
            continue
        within = engine and engine.range_begin(b"step")
        launches(function, int(line))
        if within:
            engine.range_end(within)
        print("done", flush=True)


main()
