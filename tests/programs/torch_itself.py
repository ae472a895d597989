"""PyTorch itself, on tensors in the host's memory, with kernels that its nodes launch past it.

The comments at the ends of lines are names that the test knows the lines by.
"""

import ctypes
import threading

import torch
from torch.utils.checkpoint import checkpoint

KERNELS = ["forward", "node", "hook", "recomputed", "inner", "raised", "one", "two", "ranged", "after"]
PTX = ".version 8.0\n.target sm_90\n.address_size 64\n" + "".join(
    ".visible .entry %s()\n{\n// sim.duration_ns = 10000\nret;\n}\n" % kernel for kernel in KERNELS)
CUDA = ctypes.CDLL("libcuda.so.1")
CUDA.cuLaunchKernel.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3


def ok(status):
    assert status == 0, status


def handle(function, *arguments):
    """What the call makes."""
    made = ctypes.c_void_p()
    ok(function(ctypes.byref(made), *arguments))
    return made


ok(CUDA.cuInit(0))
CONTEXT = handle(CUDA.cuDevicePrimaryCtxRetain, 0)
ok(CUDA.cuCtxSetCurrent(CONTEXT))
MODULE = handle(CUDA.cuModuleLoadData, PTX.encode())
FUNCTIONS = {name: handle(CUDA.cuModuleGetFunction, MODULE, name.encode()) for name in KERNELS}


def launch(name):
    ok(CUDA.cuLaunchKernel(FUNCTIONS[name], 1, 1, 1, 32, 1, 1, 0, None, None, None))  # launch


class Launch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, numbers, forward, backward):
        ctx.kernel = backward
        launch(forward)  # forward
        return numbers * 2

    @staticmethod
    def backward(ctx, grad):
        if ctx.kernel == "raised":
            launch("raised")
            raise ValueError("in a node")
        launch(ctx.kernel)  # node
        return grad * 2, None, None


def numbers():
    return torch.ones(4, requires_grad=True)


def train():
    leaf = numbers()
    doubled = leaf * 2
    doubled.register_hook(lambda grad: launch("hook"))  # hook
    Launch.apply(doubled, "forward", "node").sum().backward()  # train
    assert leaf.grad.tolist() == [4.0] * 4
    launch("after")  # after


def again():
    inner = lambda tensor: Launch.apply(tensor, "recomputed", "inner")  # recomputed
    checkpoint(inner, numbers(), use_reentrant=True).sum().backward()  # again


def failing():
    try:
        Launch.apply(numbers(), "forward", "raised").sum().backward()
    except ValueError as error:
        print(error)


def threads():
    def work(kernel):
        ok(CUDA.cuCtxSetCurrent(CONTEXT))
        for _ in range(50):
            Launch.apply(numbers(), "forward", kernel).sum().backward()  # threads

    both = [threading.Thread(target=work, args=(kernel,)) for kernel in ("one", "two")]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()


def ranged():
    with torch.autograd.profiler.record_function("my range"):
        launch("ranged")  # ranged


train()
again()
failing()
threads()
ranged()
print("through")
