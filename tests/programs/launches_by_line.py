"""Launches one kernel from two lines, three times from the first for each time from the second, for so many
milliseconds, and prints how often from each. With a second argument it then kills itself.

The driver is reached by ctypes alone.
"""

import ctypes
import os
import signal
import sys
import time

PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry kernel()\n{\n// sim.duration_ns = 2000\nret;\n}\n"
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


def main():
    function, until = kernel(), time.monotonic() + int(sys.argv[1]) / 1e3
    turns = 0
    while time.monotonic() < until:
        for _ in range(3):
            CUDA.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, None, None)  # often
        CUDA.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, None, None)  # seldom
        turns += 1
        time.sleep(0.0001)
        if turns % 500 == 0:
            assert CUDA.cuCtxSynchronize() == 0
    print(3 * turns, turns, flush=True)
    if len(sys.argv) > 2:
        os.kill(os.getpid(), signal.SIGKILL)


main()
