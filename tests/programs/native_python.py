"""Launches under C functions that were called from Python, and called back: the Nth launch has N blocks.

    native_python.py LIBRARY      native_callback.c as a shared object; CPython 3.8 to 3.14
"""

import ctypes
import sys
import threading

PTX = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel()
{
    // sim.duration_ns = 1000
    ret;
}
"""
CUDA = ctypes.CDLL("libcuda.so.1")
CONTEXT, MODULE, KERNEL = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
DEVICE = ctypes.c_int()
for status in (
    CUDA.cuInit(0),
    CUDA.cuDeviceGet(ctypes.byref(DEVICE), 0),
    CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(CONTEXT), DEVICE),
    CUDA.cuCtxSetCurrent(CONTEXT),
    CUDA.cuModuleLoadData(ctypes.byref(MODULE), PTX),
    CUDA.cuModuleGetFunction(ctypes.byref(KERNEL), MODULE, b"kernel"),
):
    assert status == 0, status
LIBRARY = ctypes.CDLL(sys.argv[1])
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


def launch(blocks):
    assert LIBRARY.launch_c(KERNEL, blocks) == 0
    return 0


def plain():
    return launch(1)


@CALLBACK
def called_back(blocks):
    return inside(blocks)


def inside(blocks):
    return launch(blocks)


def through_c():
    assert LIBRARY.outer_c(called_back, 2) == 2


@CALLBACK
def twice_outer(blocks):
    return LIBRARY.outer_c(called_back, blocks)


def through_c_twice():
    assert LIBRARY.outer_c(twice_outer, 3) == 4


def generated(blocks):
    yield launch(blocks)


class Made:
    def __init__(self):
        for _ in sorted(range(2), key=self.key):
            pass

    def key(self, value):
        if value == 0:
            list(generated(4))
        return value


def main():
    plain()
    through_c()
    through_c_twice()
    Made()
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()


def in_thread():
    assert CUDA.cuCtxSetCurrent(CONTEXT) == 0
    LIBRARY.outer_c(CALLBACK(lambda blocks: launch(blocks)), 5)


main()
assert CUDA.cuCtxSynchronize() == 0
