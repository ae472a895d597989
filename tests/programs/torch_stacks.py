"""Backward passes of an engine that stands for PyTorch's (`torch_engine.cpp`).

CPython 3.8 to 3.14. Arguments: the folder with the engine's libraries, then what to do, and for some
of it more. The comments at the ends of lines are names that the test knows the lines by.
"""

import ctypes
import functools
import os
import sys
import threading

KERNELS = ["first", "second", "third", "on_caller", "python", "inner", "outer", "thrown", "caught", "unnoticed",
           "afterwards", "one", "two", "other", "early", "late", "alone"]
PTX = ".version 8.0\n.target sm_90\n.address_size 64\n" + "".join(
    ".visible .entry %s()\n{\n// sim.duration_ns = 10000\nret;\n}\n" % kernel for kernel in KERNELS)
CALLBACK = ctypes.CFUNCTYPE(None)
CUDA = ctypes.CDLL("libcuda.so.1")
CUDA.cuLaunchKernel.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
FUNCTIONS = {}


def ok(status):
    assert status == 0, status


def handle(function, *arguments):
    """What the call makes."""
    made = ctypes.c_void_p()
    ok(function(ctypes.byref(made), *arguments))
    return made


def start():
    device = ctypes.c_int()
    ok(CUDA.cuInit(0))
    ok(CUDA.cuDeviceGet(ctypes.byref(device), 0))
    FUNCTIONS["context"] = handle(CUDA.cuDevicePrimaryCtxRetain, device)
    ok(CUDA.cuCtxSetCurrent(FUNCTIONS["context"]))
    module = handle(CUDA.cuModuleLoadData, PTX.encode())
    for name in KERNELS:
        FUNCTIONS[name] = handle(CUDA.cuModuleGetFunction, module, name.encode())


class Engine:
    def __init__(self, folder, mode=ctypes.DEFAULT_MODE):
        self.library = ctypes.CDLL(os.path.join(folder, "libtorch_python.so"), mode)
        self.library.backward.argtypes = [ctypes.c_char_p, ctypes.c_void_p, CALLBACK, ctypes.c_char]
        self.library.forward.argtypes = [ctypes.c_void_p]
        self.library.range_begin.restype = ctypes.c_void_p
        self.library.range_end.argtypes = [ctypes.c_void_p]

    def prepared(self, nodes, kernels, callback=lambda: None, how="c"):
        """Calls the engine from C alone, so that no frame of this file is in between."""
        handles = (ctypes.c_void_p * max(1, len(kernels)))(*[FUNCTIONS[name] for name in kernels])
        python = CALLBACK(callback)
        arguments = (nodes.encode(), handles, python, how.encode())
        return functools.partial(self.library.backward, *arguments)


def launch(name):
    ok(CUDA.cuLaunchKernel(FUNCTIONS[name], 1, 1, 1, 32, 1, 1, 0, None, None, None))  # launch


def train(engine):
    first, second = engine.prepared("mah", ["first", "second", "third"]), engine.prepared("mM", ["other", "on_caller"])
    ok(first())  # first
    ok(second())  # second


def forward(engine):
    """Operators, and the nodes that they make."""
    operator = engine.library.forward
    ok(engine.prepared("", [])())

    def block():
        operator(FUNCTIONS["early"])  # of block
        operator(None)
        operator(FUNCTIONS["early"])

    block()  # in block
    ok(engine.prepared("fff", ["one", "two", "first"])())  # forward

    def other():
        ok(CUDA.cuCtxSetCurrent(FUNCTIONS["context"]))
        operator(FUNCTIONS["late"])

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    ok(engine.prepared("f", ["other"])())  # another thread's


def steps(engine):
    """The engine's thread launches more than the one that makes the steps."""
    operator = engine.library.forward
    for _ in range(8):
        operator(FUNCTIONS["early"])  # step
        operator(FUNCTIONS["late"])
        operator(FUNCTIONS["other"])
        ok(engine.prepared("ffmmmm", ["one", "two", "first", "second", "third", "alone"])())


def custom(engine):
    """A node that is written in Python, and calls backward() itself."""
    inner = engine.prepared("m", ["inner"])

    def of_node():
        launch("python")  # python
        ok(inner())  # inner

    ok(engine.prepared("pm", ["outer"], of_node)())  # custom


def failing(engine):
    assert engine.prepared("mtm", ["thrown", "thrown"])() == 1  # failing
    ok(engine.prepared("m", ["caught"])())  # after failing


def unnoticed(engine):
    same = lambda kernel, how: engine.prepared("m", [kernel], how=how)
    ok(same("one", "s")())  # one
    ok(same("two", "s")())  # two
    ok(same("unnoticed", "u")())
    engine.library.afterwards(FUNCTIONS["afterwards"])
    # Passes queue behind it.
    ok(same("other", "c")())  # behind


def nothing(engine):
    """A pass that launches nothing, and one that nobody sees begin, in its place."""
    ok(engine.prepared("", [], how="s")())  # nothing
    ok(engine.prepared("m", ["unnoticed"], how="u")())
    ok(engine.prepared("m", ["other"])())  # after nothing


def at_once(engine):
    """Two threads in backward() at the same time: the engine's thread takes a node of each in turn."""
    barrier = threading.Barrier(2)

    def one():
        backward = engine.prepared("m" * 200, ["one"] * 200)
        barrier.wait()
        ok(backward())  # of one

    def two():
        backward = engine.prepared("m" * 200, ["two"] * 200)
        barrier.wait()
        ok(backward())  # of two

    threads = [threading.Thread(target=one), threading.Thread(target=two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def both(this, that):
    ok(this.prepared("m", ["one"])())  # of the one
    ok(that.prepared("m", ["two"])())  # of the other
    ok(this.prepared("a", ["alone"])())  # of the one again


def operators(engine):
    begin, end = engine.library.range_begin, engine.library.range_end
    whole, early = begin(b"step 17"), begin(b"early; or\nnot")
    launch("early")  # early
    # Ends on another thread, and the one that was begun before it first.
    end(whole)
    thread = threading.Thread(target=end, args=(early,))
    thread.start()
    thread.join()
    launch("late")  # late
    ok(engine.prepared("m", ["first"])())  # operators


def probes(engine):
    """What the engine is not found by where it is not."""
    for name in sys.argv[3:]:
        assert not hasattr(ctypes.CDLL(None), name), name
        assert engine is None or hasattr(ctypes.CDLL(os.path.join(sys.argv[1], "libtorch_cpu.so")), name)
        look_up = ctypes.CDLL(None).dlsym
        look_up.restype, look_up.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
        error = ctypes.CDLL(None).dlerror
        error.restype = ctypes.c_char_p
        assert look_up(None, name.encode()) is None
        print(error().decode().rsplit("undefined symbol: ", 1)[1] == name)


def main():
    folder, what = sys.argv[1:3]
    if what == "probes":
        probes(None)
        start()
        probes(Engine(folder))
    elif what == "late":
        engine = Engine(folder)
        ok(engine.prepared("", [])())
        start()
        train(engine)
    elif what == "deep":
        start()
        train(Engine(folder, ctypes.DEFAULT_MODE | os.RTLD_DEEPBIND))
    elif what == "both":
        start()
        both(Engine(folder), Engine(sys.argv[3]))
    elif what == "unbound":
        start()
        load = ctypes.CDLL(None).dlopen
        load.restype = ctypes.c_void_p
        assert load(os.path.join(folder, "libtorch_python.so").encode(), os.RTLD_LAZY)
        Engine(folder, os.RTLD_NOLOAD).prepared("m", ["one"])()
    elif what == "operators":
        # Its callbacks are found as the session begins.
        engine = Engine(folder)
        start()
        operators(engine)
    else:
        start()
        globals()[what](Engine(folder))
    ok(CUDA.cuCtxSynchronize())
    print("through")


main()
