"""Uses memory as MODE says, and prints one line of JSON with what is true of it: memory_use.py MODE

leak      64 allocations of 1 MiB at one line that are never freed, beside 512 MiB at another line
churn     500 allocations of 4 MiB at one line, each freed at once
oom       a forward pass in PyTorch whose second layer asks for more than there is, while the first layer's output is held
retry     what is asked for fits once PyTorch has given back what it caches
killed    3 allocations of 16 MiB, then the program kills itself
wanting   what is asked for is not there: twice for good, and once given at the second try; with "quick" it ends at once, with "asking" it asks how much is free after that
pools     the device's own pool and one of the program's, with a limit to what they keep; the latter is destroyed
arrays    an array, one of three dimensions and a mipmap; the array is destroyed
mapped    physical memory of three kinds of use: unmapped and released, released while it is mapped, and twice mapped
shared    another process opens 8 MiB of this one, one after the other and twice at once; both count what is their own
kinds     memory of each kind that CUPTI has records of; half of it is freed
devices   stream-ordered memory of two devices, of which the second gets another current pool
graph     a graph that allocates 4 MiB at each launch, as captured, and is launched; another is built with a node that allocates 2 MiB
segments  tensors of many sizes in PyTorch, without any library that allocates by itself; the cache is emptied once
"""

import ctypes
import inspect
import json
import os
import subprocess
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
    if "asking" in sys.argv:
        free_bytes()
    if "quick" not in sys.argv:
        time.sleep(2)
        print("two seconds later", file=sys.stderr, flush=True)
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


class PoolProperties(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int), ("device", ctypes.c_int), ("security", ctypes.c_void_p),
                ("most", ctypes.c_size_t), ("rest", ctypes.c_ubyte * 56)]


class AllocationProperties(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int), ("device", ctypes.c_int), ("security", ctypes.c_void_p),
                ("flags", ctypes.c_uint64)]


class Access(ctypes.Structure):
    _fields_ = [("location", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int)]


class ArrayDescriptor(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("format", ctypes.c_uint), ("channels", ctypes.c_uint)]


class DeepDescriptor(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("depth", ctypes.c_size_t), ("format", ctypes.c_uint), ("channels", ctypes.c_uint),
                ("flags", ctypes.c_uint)]


class AllocationNode(ctypes.Structure):
    _fields_ = [("pool", PoolProperties), ("access", ctypes.c_void_p), ("access_count", ctypes.c_size_t), ("bytes", ctypes.c_size_t),
                ("address", ctypes.c_uint64)]


class SharedHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


def attribute(pool, number):
    value = ctypes.c_uint64()
    done(driver.cuMemPoolGetAttribute(pool, number, ctypes.byref(value)))
    return value.value


def pools():
    start()
    own, made, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    done(driver.cuStreamCreate(ctypes.byref(stream), 1))
    done(driver.cuDeviceGetDefaultMemPool(ctypes.byref(own), 0))
    again = ctypes.c_void_p()
    done(driver.cuDeviceGetMemPool(ctypes.byref(again), 0))
    assert again.value == own.value
    done(driver.cuMemPoolSetAttribute(own, 4, ctypes.byref(ctypes.c_uint64(1 << 30))))
    done(driver.cuMemPoolCreate(ctypes.byref(made), ctypes.byref(PoolProperties(1, 0, 1, 0, None, 256 << 20))))

    def take(size, pool=None):
        pointer = ctypes.c_uint64()
        if pool:
            here("pool")
            done(driver.cuMemAllocFromPoolAsync(ctypes.byref(pointer), ctypes.c_size_t(size), pool, stream))
        else:
            done(driver.cuMemAllocAsync(ctypes.byref(pointer), ctypes.c_size_t(size), stream))
        return pointer
    first = [take(4 << 20) for _ in range(3)]
    second = [take(2 << 20, made) for _ in range(5)]
    done(driver.cuStreamSynchronize(stream))
    reserved = attribute(made, 5)
    used = {"own": attribute(own, 7), "made": attribute(made, 7)}
    done(driver.cuMemFreeAsync(first[0], stream))
    # Freed as any other memory.
    done(driver.cuMemFree_v2(second[0]))
    done(driver.cuStreamSynchronize(stream))
    done(driver.cuMemPoolTrimTo(made, ctypes.c_size_t(0)))
    # What calls without a pool allocate from now.
    done(driver.cuDeviceSetMemPool(0, made))
    take(1 << 20)
    done(driver.cuStreamSynchronize(stream))
    # Driver 580 still counts what cuMemFree gave back, so its figure for the pool is no truth: four of five blocks are left, and one more.
    end = {"own": attribute(own, 7), "made": 4 * (2 << 20) + (1 << 20)}
    done(driver.cuMemPoolDestroy(made))
    return {"used": used, "end": end, "reserved": reserved}


def devices():
    done(driver.cuInit(0))
    contexts, streams, own = [], [], []
    for device in range(2):
        context, stream, pool = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        done(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        done(driver.cuCtxSetCurrent(context))
        done(driver.cuStreamCreate(ctypes.byref(stream), 1))
        done(driver.cuDeviceGetDefaultMemPool(ctypes.byref(pool), device))
        contexts.append(context)
        streams.append(stream)
        own.append(pool)

    def take(device, size):
        pointer = ctypes.c_uint64()
        done(driver.cuCtxSetCurrent(contexts[device]))
        done(driver.cuMemAllocAsync(ctypes.byref(pointer), ctypes.c_size_t(size), streams[device]))
        done(driver.cuStreamSynchronize(streams[device]))
    take(0, 1 << 20)
    take(1, 2 << 20)
    made = ctypes.c_void_p()
    done(driver.cuMemPoolCreate(ctypes.byref(made), ctypes.byref(PoolProperties(1, 0, 1, 1, None, 0))))
    done(driver.cuDeviceSetMemPool(1, made))
    take(0, 4 << 20)
    take(1, 8 << 20)
    return {"used": [attribute(pool, 7) for pool in (*own, made)]}


def arrays():
    start()
    before = free_bytes()
    flat, deep, mipmap = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    done(driver.cuArrayCreate_v2(ctypes.byref(flat), ctypes.byref(ArrayDescriptor(4096, 4096, 0x20, 2))))
    done(driver.cuArray3DCreate_v2(ctypes.byref(deep), ctypes.byref(DeepDescriptor(256, 256, 256, 0x10, 1, 0))))
    done(driver.cuMipmappedArrayCreate(ctypes.byref(mipmap), ctypes.byref(DeepDescriptor(1024, 1024, 0, 0x20, 4, 0)), 3))
    taken = before - free_bytes()
    done(driver.cuArrayDestroy(flat))
    return {"taken": taken, "peak": (128 << 20) + (32 << 20) + 16 * (1024 ** 2 + 512 ** 2 + 256 ** 2),
            "end": (32 << 20) + 16 * (1024 ** 2 + 512 ** 2 + 256 ** 2)}


def mapped():
    start()
    size = 2 << 20
    base = ctypes.c_uint64()
    done(driver.cuMemAddressReserve(ctypes.byref(base), ctypes.c_size_t(16 * size), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0)))
    before = free_bytes()

    def make(*places, location=1):
        handle = ctypes.c_uint64()
        here("mapped")
        status = driver.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(AllocationProperties(1, 0, location, 0, None, 0)), ctypes.c_uint64(0))
        if status and location != 1:
            return None
        done(status)
        for place in places:
            done(driver.cuMemMap(ctypes.c_uint64(base.value + place * size), ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_uint64(0)))
            access = Access(1, 0, 3)
            done(driver.cuMemSetAccess(ctypes.c_uint64(base.value + place * size), ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1)))
        return handle

    def unmap(place):
        done(driver.cuMemUnmap(ctypes.c_uint64(base.value + place * size), ctypes.c_size_t(size)))
    taken = []

    def note():
        taken.append(before - free_bytes())
    # As PyTorch does: unmapped, then released.
    ordinary = make(0)
    note()
    unmap(0)
    done(driver.cuMemRelease(ordinary))
    note()
    # Released at once, so that the mapping alone keeps it, and in three of four places to the end.
    handles = []
    for place in range(1, 5):
        handle = make(place)
        done(driver.cuMemRelease(handle))
        handles.append(handle.value)
    note()
    unmap(4)
    note()
    # Of the host's first node, as NCCL does; not every machine lets a program have it.
    on_host = make(location=3)
    if on_host:
        done(driver.cuMemRelease(on_host))
        make(location=3)
    note()
    # Mapped twice.
    twice = make(5, 6)
    done(driver.cuMemRelease(twice))
    unmap(5)
    note()
    unmap(6)
    note()
    # One more handle of what is mapped.
    again = ctypes.c_uint64()
    done(driver.cuMemRetainAllocationHandle(ctypes.byref(again), ctypes.c_void_p(base.value + size)))
    unmap(1)
    note()
    done(driver.cuMemRelease(again))
    note()
    return {"taken": taken, "held": [count * size for count in (1, 0, 4, 3, 3, 4, 3, 3, 2)], "peak": 4 * size, "end": 2 * size,
            "on_host": size if on_host else 0, "same_handles": len(handles) - len(set(handles)), "retained_same": again.value == handles[0]}


def shared():
    start()
    if len(sys.argv) > 2:
        handle = SharedHandle((ctypes.c_ubyte * 64)(*bytes.fromhex(sys.argv[2])))
        for _ in range(2):
            pointer = ctypes.c_uint64()
            here("shared")
            done(driver.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), handle, 1))
            done(driver.cuIpcCloseMemHandle(pointer))
        # The driver counts: it gives the same address again.
        places = set()
        for _ in range(2):
            here("kept")
            done(driver.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), handle, 1))
            places.add(pointer.value)
        assert len(places) == 1, places
        done(driver.cuIpcCloseMemHandle(pointer))
        done(driver.cuMemsetD8_v2(pointer, 1, ctypes.c_size_t(1)))
        allocate(1 << 20)
        return {}
    handle = SharedHandle()
    pointer = allocate(8 << 20)
    done(driver.cuIpcGetMemHandle(ctypes.byref(handle), pointer))
    subprocess.run([sys.executable, *sys.argv, bytes(handle.bytes).hex()], check=True, stdout=subprocess.DEVNULL)
    return {"end": 8 << 20, "child_end": 1 << 20}


def kinds():
    start()
    stream = ctypes.c_void_p()
    done(driver.cuStreamCreate(ctypes.byref(stream), 1))
    size = ctypes.c_size_t(2 << 20)

    def make(call, *arguments):
        pointer = ctypes.c_uint64()
        done(call(ctypes.byref(pointer), *arguments))
        return pointer
    device = [make(driver.cuMemAlloc_v2, size) for _ in range(6)]
    managed = [make(driver.cuMemAllocManaged, size, 1) for _ in range(4)]
    pinned = [make(driver.cuMemAllocHost_v2, size) for _ in range(4)] + [make(driver.cuMemHostAlloc, size, 0) for _ in range(4)]
    pool = [make(driver.cuMemAllocAsync, size, stream) for _ in range(6)]
    for pointer in device[::2] + managed[::2]:
        done(driver.cuMemFree_v2(pointer))
    for pointer in pinned[::2]:
        done(driver.cuMemFreeHost(pointer))
    for pointer in pool[::2]:
        done(driver.cuMemFreeAsync(pointer, stream))
    done(driver.cuStreamSynchronize(stream))
    return {"held": (3 + 2 + 3) * (2 << 20)}


def graph():
    start()
    stream, captured, ready = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    done(driver.cuStreamCreate(ctypes.byref(stream), 1))
    done(driver.cuStreamBeginCapture_v2(stream, 0))
    pointer = ctypes.c_uint64()
    here("graph")
    done(driver.cuMemAllocAsync(ctypes.byref(pointer), ctypes.c_size_t(4 << 20), stream))
    done(driver.cuMemsetD8Async(pointer, 1, ctypes.c_size_t(4 << 20), stream))
    done(driver.cuStreamEndCapture(stream, ctypes.byref(captured)))
    done(driver.cuGraphInstantiateWithFlags(ctypes.byref(ready), captured, ctypes.c_uint64(0)))
    done(driver.cuGraphLaunch(ready, stream))
    done(driver.cuStreamSynchronize(stream))
    # Memory of a graph that any call may free.
    done(driver.cuMemFree_v2(pointer))
    allocate(1 << 20)
    built, node = ctypes.c_void_p(), ctypes.c_void_p()
    done(driver.cuGraphCreate(ctypes.byref(built), 0))
    wanted = AllocationNode(PoolProperties(1, 0, 1, 0), None, 0, 2 << 20, 0)
    here("built")
    done(driver.cuGraphAddMemAllocNode(ctypes.byref(node), built, None, ctypes.c_size_t(0), ctypes.byref(wanted)))
    return {"in_graphs": (4 + 2) << 20, "end": 1 << 20}


found = {"devices": devices, "kinds": kinds, "pools": pools, "arrays": arrays, "mapped": mapped, "shared": shared, "graph": graph, "leak": leak, "churn": churn, "oom": oom, "retry": retry, "killed": killed, "wanting": wanting, "segments": segments}[sys.argv[1]]()
print(json.dumps({"lines": LINES, **found}))
