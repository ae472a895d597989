"""Modules in modules, called as PyTorch calls them, each launching kernels of 10 µs.

    torch_modules.py FOLDER

FOLDER gets a stand-in for PyTorch's file that calls modules. CPython 3.11 and later.
"""

import ctypes
import functools
import os
import sys

CALLER = """
class Module:
    def __call__(self, *given):
        return self._wrapped_call_impl(*given)

    def _wrapped_call_impl(self, *given):
        return self._call_impl(*given)

    def _call_impl(self, *given):
        return self.forward(*given)
"""
PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry kernel()\n{\n// sim.duration_ns = 10000\nret;\n}\n"
CUDA = ctypes.CDLL("libcuda.so.1")
CUDA.cuLaunchKernel.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
KERNEL = ctypes.c_void_p()


def start():
    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    for status in (CUDA.cuInit(0), CUDA.cuDeviceGet(ctypes.byref(device), 0),
                   CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), CUDA.cuCtxSetCurrent(context),
                   CUDA.cuModuleLoadData(ctypes.byref(module), PTX),
                   CUDA.cuModuleGetFunction(ctypes.byref(KERNEL), module, b"kernel")):
        assert status == 0, status


def launch():
    assert CUDA.cuLaunchKernel(KERNEL, 1, 1, 1, 32, 1, 1, 0, None, None, None) == 0


os.makedirs(os.path.join(sys.argv[1], "torch/nn/modules"))
sys.path.insert(0, sys.argv[1])
with open(os.path.join(sys.argv[1], "torch/nn/modules/module.py"), "w") as file:
    file.write(CALLER)
from torch.nn.modules.module import Module  # noqa: E402


def decorated(forward):
    @functools.wraps(forward)
    def wrapper(self, *given):
        return forward(self, *given)

    return wrapper


class Linear(Module):
    def forward(self):
        launch()


class Attention(Module):
    def __init__(self):
        self.q, self.o = Linear(), Linear()

    @decorated
    def forward(self):
        self.q()
        launch()
        self.o()


class Block(Module):
    def __init__(self, depth):
        self.attention, self.inner = Attention(), Block(depth - 1) if depth > 1 else None

    def forward(self):
        self.attention()
        launch()
        if self.inner:
            self.inner()


def head():
    class Head(Module):
        def forward(self):
            launch()

    return Head()


class Model(Module):
    def __init__(self):
        self.block, self.head = Block(3), head()

    def forward(self):
        self.block()
        self.head()


def forward():
    """No module's, though its name is."""
    launch()


def main():
    start()
    model = Model()
    for _ in range(2):
        model()
        forward()
    assert CUDA.cuCtxSynchronize() == 0


main()
