"""Launches kernels from stacks of every shape, and says what Python itself says of each.

    python_stacks.py SCENARIO held|released

`held` keeps the GIL in the driver, `released` lets go of it. Every launch has a grid of its own: the Nth launch, from
1, has N blocks. Standard output has a line of JSON for each: [[file, name, line], ...], the outermost frame first.
CPython 3.8 to 3.14; the driver is reached by ctypes alone.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import json
import random
import sys
import threading
import time

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


def driver(holds_gil):
    return (ctypes.PyDLL if holds_gil else ctypes.CDLL)("libcuda.so.1")


def kernel_of(cuda):
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    for status in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        cuda.cuCtxSetCurrent(context),
        cuda.cuModuleLoadData(ctypes.byref(module), PTX),
        cuda.cuModuleGetFunction(ctypes.byref(function), module, b"kernel"),
    ):
        assert status == 0, status
    return context, function


STACKS = []
LOCK = threading.Lock()
SCENARIO, GIL = (sys.argv + ["many", "held"])[1:3]
CUDA = driver(GIL == "held")
CUDA.cuLaunchKernel.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
CONTEXT, KERNEL = kernel_of(CUDA)
LAUNCH = functools.partial(CUDA.cuLaunchKernel, KERNEL)
REST = (1, 1, 1, 1, 1, 0, None, None, None)


def note(frame):
    """Notes the stack of a launch that is about to be made on the same line; the launch's number."""
    stack = []
    while frame is not None:
        code = frame.f_code
        stack.append([code.co_filename, getattr(code, "co_qualname", code.co_name), frame.f_lineno])
        frame = frame.f_back
    with LOCK:
        STACKS.append(stack[::-1])
        return len(STACKS)


# Steps: each goes one or two frames deeper in its own way.


def plain(depth, pick):
    go(depth, pick)


def several_lines(depth, pick):
    return go(
        depth,
        pick,
    )


def with_locals(depth, pick):
    one, two, three = depth, pick, [depth] * 3
    for _ in three[:1]:
        if one >= 0:
            go(one, two)


def in_try(depth, pick):
    try:
        raise ValueError
    except ValueError:
        go(depth, pick)
    finally:
        depth = 0


@contextlib.contextmanager
def managed(depth, pick):
    yield go(depth, pick)


def in_with(depth, pick):
    with managed(depth, pick):
        pass


class Layer:
    def __init__(self, depth, pick):
        self.depth, self.pick = depth, pick

    def forward(self):
        return go(self.depth, self.pick)

    @classmethod
    def made(cls, depth, pick):
        return cls(depth, pick).forward()

    @staticmethod
    def beside(depth, pick):
        return go(depth, pick)

    @property
    def value(self):
        return go(self.depth, self.pick)

    def __call__(self):
        return self.forward()

    def __getattr__(self, name):
        return go(self.depth, self.pick)

    def __lt__(self, other):
        go(self.depth, self.pick)
        return False


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments, **named):
        return function(*arguments, **named)

    return wrapper


@decorated
def behind_a_decorator(depth, pick):
    return go(depth, pick)


def generator(depth, pick):
    yield 1
    yield go(depth, pick)


def delegating(depth, pick):
    yield from generator(depth, pick)


async def coroutine(depth, pick):
    return go(depth, pick)


async def awaiting(depth, pick):
    result = await coroutine(depth, pick)
    return result


async def numbers(depth, pick):
    yield go(depth, pick)


async def over_numbers(depth, pick):
    async for number in numbers(depth, pick):
        return number


def drive(awaitable):
    try:
        awaitable.send(None)
    except StopIteration as stop:
        return stop.value


def closure(depth, pick):
    def inside():
        def further():
            go(depth, pick)

        further()

    inside()


def executed(depth, pick):
    lines = "\n" * pick.randrange(40)
    exec(compile(lines + "def generated(depth, pick):\n    x = 1\n    return go(depth, pick)\ngenerated(depth, pick)", "<generated %d>" % len(lines), "exec"), {"go": go, "depth": depth, "pick": pick})


def évident(depth, pick):
    go(depth, pick)


STEPS = [
    plain,
    several_lines,
    with_locals,
    in_try,
    in_with,
    behind_a_decorator,
    closure,
    executed,
    évident,
    Layer.made,
    Layer.beside,
    lambda depth, pick: go(depth, pick),
    lambda depth, pick: Layer(depth, pick).value,
    lambda depth, pick: Layer(depth, pick)(),
    lambda depth, pick: Layer(depth, pick).missing,
    lambda depth, pick: sorted([Layer(depth, pick), Layer(0, pick)], reverse=False),
    lambda depth, pick: [go(depth, pick) for _ in range(1)],
    lambda depth, pick: {str(go(depth, pick)): 1 for _ in range(1)},
    lambda depth, pick: next(go(depth, pick) for _ in range(1)),
    lambda depth, pick: list(map(lambda step: go(step, pick), [depth])),
    lambda depth, pick: functools.partial(go, depth)(pick),
    lambda depth, pick: list(generator(depth, pick)),
    lambda depth, pick: list(delegating(depth, pick)),
    lambda depth, pick: drive(coroutine(depth, pick)),
    lambda depth, pick: drive(awaiting(depth, pick)),
    lambda depth, pick: drive(over_numbers(depth, pick)),
    lambda depth, pick: max([1], key=lambda _: go(depth, pick) or 1),
]


def go(depth, pick):
    if depth <= 0:
        return pick.choice(LEAVES)()
    pick.choice(STEPS)(depth - 1, pick)


def leaf_plain():
    LAUNCH(note(sys._getframe()), *REST)


def leaf_in_a_loop():
    for _ in range(2):
        pass
    for _ in range(1):
        x = 1
        LAUNCH(note(sys._getframe()), *REST)
        y = x


def leaf_generator():
    def numbers():
        yield LAUNCH(note(sys._getframe()), *REST)

    return list(numbers())


LEAVES = [
    leaf_plain,
    leaf_in_a_loop,
    leaf_generator,
    lambda: LAUNCH(note(sys._getframe()), *REST),
    lambda: [LAUNCH(note(sys._getframe()), *REST) for _ in range(1)],
]


def many():
    pick = random.Random(4)
    for index in range(1000):
        go(index % 30, pick)


def threads():
    def work(seed):
        pick = random.Random(seed)
        assert CUDA.cuCtxSetCurrent(CONTEXT) == 0
        barrier.wait()
        for index in range(100):
            go(index % 20, pick)

    barrier = threading.Barrier(6)
    # Two of each seed: they define the same stacks at the same time.
    workers = [threading.Thread(target=work, args=(index % 3,)) for index in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def reused():
    """Code objects of equal size, one after the other at the same addresses."""
    lines = 12
    for index in range(400):
        before = index % lines
        source = "def f%03d(x):\n    y = x\n%s    launch(note(frame()), *rest)\n%s    return y\n" % (
            index % 100,
            "\n" * before,
            "\n" * (lines - before),
        )
        space = {"launch": LAUNCH, "note": note, "frame": sys._getframe, "rest": REST}
        exec(compile(source, "<file %03d>" % (index % 7), "exec"), space)
        space["f%03d" % (index % 100)](1)
        del space
        gc.collect(0)


def beside_others():
    """The same stacks again and again, and between them code objects that launch once and end some rounds later."""
    space = {"launch": LAUNCH, "note": note, "frame": sys._getframe, "rest": REST}
    for index in range(20):
        source = "def steady%d(left):\n    if left:\n        return steady%d(left - 1)\n    launch(note(frame()), *rest)\n"
        exec(compile(source % (index, index - 1), "<steady>", "exec"), space)
    others = []
    for index in range(200):
        for left in range(0, 20, 3):
            space["steady19"](left)
        source = "def other%03d():\n%s    launch(note(frame()), *rest)\n" % (index, "    x = 1\n" * (index % 17))
        exec(compile(source, "<other>", "exec"), space)
        space["other%03d" % index]()
        others.append(space.pop("other%03d" % index))
        del others[:-30]


def deep():
    def down(left):
        if left:
            down(left - 1)
        else:
            LAUNCH(note(sys._getframe()), *REST)

    def work():
        assert CUDA.cuCtxSetCurrent(CONTEXT) == 0
        for left in (100, 505, 520, 10_000):
            down(left)

    sys.setrecursionlimit(20_000)
    threading.stack_size(512 << 20)
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()


def interpreters():
    """A second interpreter, with frames of its own; and the first one again."""
    try:
        import _interpreters as module
    except ImportError:
        import _xxsubinterpreters as module
    try:
        other = module.create("legacy") if sys.version_info >= (3, 13) else module.create(isolated=False)
    except TypeError:
        other = module.create()
    address = ctypes.cast(CUDA.cuLaunchKernel, ctypes.c_void_p).value
    script = (
        "import ctypes, sys\n"
        "kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)\n"
        "launch = kind(%d)\n"
        "def inside():\n"
        "    launch(%d, 1, *%r)\n"
        "inside()\n"
    ) % (address, KERNEL.value, REST)
    STACKS.append([["<script>" if sys.version_info >= (3, 13) else "<string>", "<module>", 6], ["<script>", "inside", 5]])
    problem = module.run_string(other, script)
    assert not problem, problem
    module.destroy(other)
    go(3, random.Random(1))


def one_after_another():
    """Interpreters that follow one another, each with code objects like those of the one before, often at the same addresses:
    a thread of each launches, from a stack of one function."""
    try:
        import _interpreters as module
    except ImportError:
        import _xxsubinterpreters as module
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in (CUDA.cuLaunchKernel, CUDA.cuCtxSetCurrent)]
    for index in range(12):
        try:
            other = module.create("legacy") if sys.version_info >= (3, 13) else module.create(isolated=False)
        except TypeError:
            other = module.create()
        script = (
            "import ctypes, sys, _thread\n"
            "kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)\n"
            "launch, current = kind(%d), ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(%d)\n"
            "done = _thread.allocate_lock()\n"
            "done.acquire()\n"
            "def inside%02d():\n"
            "%s    current(%d), launch(%d, %d, *%r), done.release()\n"
            "_thread.start_new_thread(inside%02d, ())\n"
            "done.acquire()\n"
            "while _thread._count():\n"
            "    pass\n"
        ) % (*addresses, index, "\n" * index, CONTEXT.value, KERNEL.value, index + 1, REST, index)
        STACKS.append([["", "inside%02d" % index, 7 + index]])
        problem = module.run_string(other, script)
        assert not problem, problem
        module.destroy(other)


def ends():
    """Launches until, and while, the interpreter ends."""

    def work():
        assert CUDA.cuCtxSetCurrent(CONTEXT) == 0
        while True:
            go(5, random.Random(1))
            LAUNCH(1, *REST)

    def last():
        go(5, random.Random(2))

    class Late:
        def __del__(self):
            LAUNCH(1, *REST)

    atexit.register(last)
    sys.late = Late()
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.05)


def profiled():
    """With a trace function on, which the interpreter runs other instructions for."""
    sys.settrace(lambda frame, event, argument: None)
    go(5, random.Random(3))
    sys.settrace(None)
    sys.setprofile(lambda frame, event, argument: None)
    go(5, random.Random(4))
    sys.setprofile(None)


globals()[SCENARIO]()
assert CUDA.cuCtxSynchronize() == 0
if SCENARIO != "ends":
    for stack in STACKS:
        print(json.dumps(stack))
