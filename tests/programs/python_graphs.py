"""Graphs of every make, each with kernels of its own, replayed from one line.

CPython 3.8 to 3.14. The comments at the ends of lines are names that the test knows the lines by.
"""

import ctypes
import functools
import threading

KERNELS = ["plain", "first", "second", "cloned", "before", "after", "inner", "outer", "held", "around", "built", "elsewhere"]
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


device = ctypes.c_int()
ok(CUDA.cuInit(0))
ok(CUDA.cuDeviceGet(ctypes.byref(device), 0))
CONTEXT = handle(CUDA.cuDevicePrimaryCtxRetain, device)
ok(CUDA.cuCtxSetCurrent(CONTEXT))
MODULE = handle(CUDA.cuModuleLoadData, PTX.encode())
FUNCTIONS = {name: handle(CUDA.cuModuleGetFunction, MODULE, name.encode()) for name in KERNELS}
STREAM = handle(CUDA.cuStreamCreate, 1)


def launcher(name):
    """Calls the driver from C alone, so that no frame of this file is in between."""
    return functools.partial(CUDA.cuLaunchKernel, FUNCTIONS[name], 1, 1, 1, 32, 1, 1, 0, STREAM, None, None)


def begin():
    ok(CUDA.cuStreamBeginCapture_v2(STREAM, 2))


def end():
    graph = ctypes.c_void_p()
    ok(CUDA.cuStreamEndCapture(STREAM, ctypes.byref(graph)))
    return graph


def instantiate(graph):
    return handle(CUDA.cuGraphInstantiateWithFlags, graph, ctypes.c_ulonglong(0))


def captured():
    first, second = launcher("first"), launcher("second")
    begin()
    ok(first())  # first
    ok(second())  # second
    graph = end()
    executable = instantiate(graph)
    ok(CUDA.cuGraphDestroy(graph))
    return executable


def cloned():
    launch = launcher("cloned")
    begin()
    ok(launch())  # cloned
    return instantiate(handle(CUDA.cuGraphClone, end()))


def updated():
    before, after = launcher("before"), launcher("after")
    begin()
    ok(before())  # before
    executable = instantiate(end())
    replay(executable)  # replay before
    begin()
    ok(after())  # after
    graph = end()
    ok(CUDA.cuGraphExecUpdate_v2(executable, graph, (ctypes.c_ulonglong * 4)()))
    ok(CUDA.cuGraphDestroy(graph))
    return executable


def nested():
    inner, outer = launcher("inner"), launcher("outer")
    begin()
    ok(inner())  # inner
    executable = instantiate(end())
    begin()
    ok(CUDA.cuGraphLaunch(executable, STREAM))
    ok(outer())  # outer
    return instantiate(end())


def child():
    held, around = launcher("held"), launcher("around")
    begin()
    ok(held())  # held
    graph = end()
    begin()
    ok(around())  # around
    whole = end()
    handle(CUDA.cuGraphAddChildGraphNode, whole, None, ctypes.c_size_t(0), graph)
    return instantiate(whole)


def built():
    class Parameters(ctypes.Structure):
        _fields_ = [("function", ctypes.c_void_p), ("shape", ctypes.c_uint * 6), ("shared", ctypes.c_uint),
                    ("arguments", ctypes.c_void_p), ("extra", ctypes.c_void_p), ("kernel", ctypes.c_void_p),
                    ("context", ctypes.c_void_p)]

    what = Parameters(FUNCTIONS["built"], (ctypes.c_uint * 6)(1, 1, 1, 32, 1, 1), 0, None, None, None, None)
    graph, node = handle(CUDA.cuGraphCreate, 0), ctypes.c_void_p()
    ok(CUDA.cuGraphAddKernelNode_v2(ctypes.byref(node), graph, None, ctypes.c_size_t(0), ctypes.byref(what)))  # built
    return instantiate(graph)


def on_another_thread():
    launch = launcher("elsewhere")

    def work():
        ok(CUDA.cuCtxSetCurrent(CONTEXT))
        ok(launch())  # elsewhere

    begin()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    graph = end()
    executable = instantiate(graph)
    ok(CUDA.cuGraphDestroy(graph))
    return executable


def replay(executable):
    ok(CUDA.cuGraphLaunch(executable, STREAM))  # replay


ok(launcher("plain")())
for make in (captured, cloned, updated, nested, child, built, on_another_thread):
    executable = make()
    for _ in range(3):
        replay(executable)
ok(CUDA.cuCtxSynchronize())
