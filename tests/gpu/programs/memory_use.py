"""Uses memory as MODE says, and prints one line of JSON with what is true of it: memory_use.py MODE

leak      64 allocations of 1 MiB at one line that are never freed, beside 512 MiB at another line
churn     500 allocations of 4 MiB at one line, each freed at once
oom       a forward pass in PyTorch whose second layer asks for more than there is, while the first layer's output is held
retry     what is asked for fits once PyTorch has given back what it caches
killed    3 allocations of 16 MiB, then the program kills itself
wanting   what is asked for is not there: twice for good, and once given at the second try
segments  tensors of many sizes in PyTorch, without any library that allocates by itself; the cache is emptied once
"""

import ctypes
import inspect
import json
import os
import sys
import time

LINES = {}
driver = ctypes.CDLL("libcuda.so.1")


def here(mark):
    LINES[mark] = inspect.currentframe().f_back.f_lineno + 1


def done(status):
    assert status == 0, f"the driver returned {status}"


def start():
    context = ctypes.c_void_p()
    done(driver.cuInit(0))
    done(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    done(driver.cuCtxSetCurrent(context))


def allocate(size):
    pointer = ctypes.c_uint64()
    done(driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
    return pointer


def free_bytes():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    done(driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    return free.value


def leak():
    start()
    before = free_bytes()
    whole = allocate(512 << 20)
    pieces = []
    for _ in range(64):
        pointer = ctypes.c_uint64()
        here("leak")
        done(driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)))
        pieces.append(pointer)
    taken = before - free_bytes()
    done(driver.cuMemFree_v2(whole))
    return {"taken": taken, "leaked": 64 << 20, "peak": (512 + 64) << 20}


def churn():
    start()
    pointer = ctypes.c_uint64()
    for _ in range(500):
        here("churn")
        done(driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4 << 20)))
        done(driver.cuMemFree_v2(pointer))
    return {"peak": 4 << 20}


def killed():
    start()
    for _ in range(3):
        pointer = ctypes.c_uint64()
        done(driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(16 << 20)))
    os.kill(os.getpid(), 9)


def wanting():
    start()
    held = allocate(24 << 20)
    pointer = ctypes.c_uint64()

    def ask(size):
        here("wanting")
        return driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
    # Given at the second try.
    most = free_bytes()
    assert ask(most + (8 << 20)) == 2
    done(driver.cuMemFree_v2(held))
    done(ask(most + (8 << 20)))
    done(driver.cuMemFree_v2(pointer))
    allocate(16 << 20)
    assert ask(1 << 44) == 2 and ask(1 << 44) == 2
    time.sleep(2)
    return {"asked": 1 << 44}


def stats(torch):
    every = torch.cuda.memory_stats()
    names = {"reserved": "reserved_bytes.all.current", "peak": "reserved_bytes.all.peak", "allocations": "num_device_alloc",
             "frees": "num_device_free", "retries": "num_alloc_retries", "ooms": "num_ooms"}
    return {name: every.get(key, 0) for name, key in names.items()}


def oom():
    import torch

    class Wide(torch.nn.Module):
        def forward(self, x):
            first = torch.cat([x] * 8)
            here("oom")
            return first, torch.empty(1 << 44, dtype=torch.uint8, device="cuda")

    x = torch.ones(64 << 20, dtype=torch.uint8, device="cuda")
    try:
        Wide()(x)
    except torch.cuda.OutOfMemoryError:
        return {"asked": 1 << 44, **stats(torch)}
    raise AssertionError("2^44 bytes were given")


def retry():
    import torch
    torch.zeros(1, device="cuda")
    free = torch.cuda.mem_get_info()[0]
    pieces = [torch.empty(256 << 20, dtype=torch.uint8, device="cuda") for _ in range(free // 2 // (256 << 20))]
    del pieces
    torch.empty(free * 7 // 10, dtype=torch.uint8, device="cuda")
    return stats(torch)


def segments():
    import torch
    held = []
    for turn in range(60):
        here("segments")
        held.append(torch.empty((turn * 7919 % 61 + 1) << 18, dtype=torch.uint8, device="cuda"))
        if turn % 3 == 0:
            held.pop(0)
        if turn == 40:
            del held[::2]
            torch.cuda.empty_cache()
    torch.cuda.synchronize()
    return {**stats(torch), "free": torch.cuda.mem_get_info()[0]}


found = {"leak": leak, "churn": churn, "oom": oom, "retry": retry, "killed": killed, "wanting": wanting, "segments": segments}[sys.argv[1]]()
print(json.dumps({"lines": LINES, **found}))
