"""A training loop of known shape: kernels from lines of its own, and through a library's.

    train.py steps|fault|odd

CPython 3.8 to 3.14. The comments at the ends of lines are names that the test knows the lines by.
"""

import ctypes
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))

from kit import optim  # noqa: E402
from kit.fused.linear import FusedLinear  # noqa: E402
from kit.linear import Linear  # noqa: E402

KERNELS = {"gemm": "duration_ns = 40000", "fused": "duration_ns = 70000", "adam": "duration_ns = 25000",
           "spin": "duration_ns = 1000000000", "add": "duration_ns = 10000", "bad_store": "duration_ns = 5000\n// sim.fault = 700"}
PTX = ".version 8.0\n.target sm_90\n.address_size 64\n" + "".join(
    ".visible .entry %s()\n{\n// sim.%s\nret;\n}\n" % kernel for kernel in KERNELS.items())
CUDA = ctypes.CDLL("libcuda.so.1")
CUDA.cuLaunchKernel.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3


def start():
    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    for status in (
        CUDA.cuInit(0),
        CUDA.cuDeviceGet(ctypes.byref(device), 0),
        CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        CUDA.cuCtxSetCurrent(context),
        CUDA.cuModuleLoadData(ctypes.byref(module), PTX.encode()),
    ):
        assert status == 0, status
    functions = {}
    for name in KERNELS:
        functions[name] = ctypes.c_void_p()
        assert CUDA.cuModuleGetFunction(ctypes.byref(functions[name]), module, name.encode()) == 0
    return functions


FUNCTIONS = start()


def launcher(name):
    """Calls the driver from C alone, so that no frame of this file is in between."""
    arguments = (FUNCTIONS[name], 1, 1, 1, 32, 1, 1, 0, None, None, None)
    import functools

    return functools.partial(CUDA.cuLaunchKernel, *arguments)


def train_step(layers, add):
    for layer in layers:
        layer.forward()  # forward
    add()  # add
    optim.Adam(launcher("adam")).step()  # step


def main():
    layers = [Linear(launcher("gemm")), Linear(launcher("gemm")), FusedLinear(launcher("fused"))]
    for _ in range(5):
        train_step(layers, launcher("add"))  # train


def fault():
    launcher("spin")()  # what follows is accepted before the bad kernel runs
    launcher("bad_store")()  # bad
    launcher("add")()  # after
    return CUDA.cuCtxSynchronize()  # wait


def odd():
    source = "def f(launch):\n    launch()\nf(launch)\n"
    for name, file in [("a;b", "x;y.py"), ("new\nline", "new\nfile 7.py"), ("größe", "данные.py")]:
        code = compile(source, file, "exec")
        inner = [constant for constant in code.co_consts if hasattr(constant, "co_code")][0]
        names = {"co_name": name, "co_qualname": name} if hasattr(inner, "co_qualname") else {"co_name": name}
        constants = tuple(inner.replace(**names) if c is inner else c for c in code.co_consts)
        exec(code.replace(co_consts=constants), {"launch": launcher("add")})


if sys.argv[1] == "fault":
    sys.exit(3 if fault() == 700 else 4)  # main fault
if sys.argv[1] == "odd":
    odd()
else:
    main()  # main
assert CUDA.cuCtxSynchronize() == 0
