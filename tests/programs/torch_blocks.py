"""Uses the stand-in of PyTorch's allocator (torch_allocator.cpp) as MODE says, and prints one line of JSON with its counts: torch_blocks.py FOLDER MODE

lines    10 blocks of 1 MiB that stay, 100 of 2 MiB that go at once, 3 of 5 MiB at the peak
threads  8 threads give and take blocks, and each takes back what another one got
loading  the first block comes while another thread loads a library that takes one
host     memory of the host only, without CUDA
fork     a forked child takes back a block and gets one
drift    the allocator's total changes without a block
lacking  12 blocks of 5 MiB, of which every second one goes, then one of 15 MiB, for which there is no piece and no memory
grows    a model that stays, and a block more each 10 ms
descriptors  3 blocks while no descriptor is free
late     waits for a line on its input between: a block, half a peak, the rest
"""

import ctypes
import inspect
import json
import os
import resource
import sys
import threading
import time

MIB = 1 << 20
LINES = {}
folder, mode = sys.argv[1:]
c10 = ctypes.CDLL(os.path.join(folder, "libc10.so"))
cuda = ctypes.CDLL(os.path.join(folder, "libc10_cuda.so"))
cuda.block_alloc.restype = ctypes.c_void_p
cuda.block_alloc.argtypes = [ctypes.c_size_t]
cuda.block_free.argtypes = [ctypes.c_void_p]


def here(mark):
    LINES[mark] = inspect.currentframe().f_back.f_lineno + 1


def lines():
    for _ in range(100):
        here("churn")
        block = cuda.block_alloc(2 * MIB)
        cuda.block_free(block)
    here("kept")
    kept = [cuda.block_alloc(MIB) for _ in range(10)]
    here("peak")
    peak = [cuda.block_alloc(5 * MIB) for _ in range(3)]
    for block in peak:
        cuda.block_free(block)
    return kept


def threads():
    given, barrier = [None] * 8, threading.Barrier(8)

    def run(number):
        for _ in range(200):
            given[number] = cuda.block_alloc(4096 * (number + 1))
            barrier.wait()
            cuda.block_free(given[(number + 1) % 8])
            barrier.wait()
    all_threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()


def loading():
    assert cuda.first_call_while_loading(os.path.join(folder, "libloaded.so").encode()) == 0


def host():
    for _ in range(5):
        c10.host_alloc(4096)


def fork():
    block = cuda.block_alloc(MIB)
    child = os.fork()
    if child == 0:
        cuda.block_free(block)
        cuda.block_alloc(2 * MIB)
        os._exit(0 if counts()["forwarded"] == [3, *counts()["own"]] else 1)
    assert os.waitpid(child, 0)[1] == 0


def drift():
    cuda.block_alloc(MIB)
    cuda.drift(12345)
    cuda.block_alloc(MIB)


def lacking():
    here("pieces")
    kept = [cuda.block_alloc(5 * MIB) for _ in range(12)]
    for block in kept[::2]:
        cuda.block_free(block)
    assert cuda.block_alloc(15 * MIB) is None


def grows():
    kept = [cuda.block_alloc(MIB) for _ in range(5)]
    for _ in range(20):
        time.sleep(0.01)
        here("grows")
        kept.append(cuda.block_alloc(4096))
    return kept


def descriptors():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    for _ in range(3):
        cuda.block_alloc(MIB)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def late():
    def turn():
        print("ready", flush=True)
        sys.stdin.readline()
    before = [cuda.block_alloc(MIB) for _ in range(4)]
    turn()
    here("late")
    known = [cuda.block_alloc(2 * MIB) for _ in range(3)]
    cuda.block_free(before.pop())
    turn()
    cuda.block_free(known.pop())
    cuda.block_alloc(3 * MIB)
    turn()
    cuda.block_free(known.pop())
    here("last")
    cuda.block_alloc(4 * MIB)


def counts():
    numbers, reported = (ctypes.c_long * 5)(), (ctypes.c_long * 3)()
    cuda.stats(numbers)
    c10.reported(reported)
    # A program that looks for the function itself finds PyTorch's or none.
    name = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
    in_library = ctypes.cast(getattr(c10, name, None) or 0, ctypes.c_void_p).value
    return {"allocated": numbers[0], "peak": numbers[1], "reserved": numbers[2], "calls": numbers[3], "own": list(numbers)[4:],
            "forwarded": list(reported)[:2], "device": reported[2], "in_library": bool(in_library),
            "is_global": hasattr(ctypes.CDLL(None), name), "lines": LINES}


if mode != "host":
    assert cuda.start() == 0
kept = {"lines": lines, "threads": threads, "loading": loading, "host": host, "fork": fork, "drift": drift, "lacking": lacking, "grows": grows, "descriptors": descriptors, "late": late}[mode]()
print(json.dumps(counts()), flush=True)
if mode in ("lines", "grows"):
    os._exit(0)
