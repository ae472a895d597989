"""Programs with one fault each, and their mended twins.

    planted.py FAULT        FAULT is a function below

CPython 3.8 to 3.14. The comments at the ends of lines are names that the test knows the lines by.
"""

import concurrent.futures
import ctypes
import functools
import os
import sys
import time

# The rank that comes last finds the others there.
REDUCE = 50_000 if os.environ.get("RANK") == "1" else 900_000
KERNELS = {"tiny": 1_600, "step": 200_000, "ncclDevKernel_AllReduce": REDUCE}
PTX = ".version 8.0\n.target sm_90\n.address_size 64\n" + "".join(
    ".visible .entry %s()\n{\n// sim.duration_ns = %d\nret;\n}\n" % kernel for kernel in KERNELS.items())
CUDA = ctypes.CDLL("libcuda.so.1")
CUDA.cuLaunchKernel.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
CUDA.cuMemcpyHtoDAsync_v2.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
CUDA.cuMemAlloc_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
CUDA.cuMemFree_v2.argtypes = [ctypes.c_uint64]
CUDA.cuStreamSynchronize.argtypes = [ctypes.c_void_p]
CUDA.cuGraphInstantiateWithFlags.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
CUDA.cuGraphLaunch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
BYTES = 8 << 20


def call(name, *arguments):
    status = getattr(CUDA, name)(*arguments)
    assert status == 0, (name, status)


def start():
    device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), PTX.encode())
    call("cuStreamCreate", ctypes.byref(STREAM), 1)
    launch = {}
    for name in KERNELS:
        function = ctypes.c_void_p()
        call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        # Enough blocks for every multiprocessor. The driver is called from C alone: no frame is in between.
        launch[name] = functools.partial(CUDA.cuLaunchKernel, function, 264, 1, 1, 1024, 1, 1, 0, STREAM, None, None)
    return launch


def memory(size):
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), size)
    return address


STREAM = ctypes.c_void_p()
LAUNCH = start()


def busy():
    for _ in range(300):
        LAUNCH["step"]()


def steps(number=30):
    for step in range(number):
        time.sleep(0.05 if step == 10 else 0.005)
        LAUNCH["step"]()  # first
        LAUNCH["tiny"]()
        for _ in range(4):
            LAUNCH["tiny"]()
            LAUNCH["tiny"]()
        LAUNCH["step"]()


def more_steps():
    steps(45)


def long_busy():
    for _ in range(20):
        busy()
        CUDA.cuStreamSynchronize(STREAM)
    for _ in range(20):
        busy()


def tiny_kernels():
    for _ in range(12_000):
        LAUNCH["tiny"]()  # tiny
        sum(range(500))


def tiny_kernels_mended():
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuStreamBeginCapture_v2", STREAM, 0)
    for _ in range(500):
        LAUNCH["tiny"]()
    call("cuStreamEndCapture", STREAM, ctypes.byref(graph))
    call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
    for _ in range(60):
        call("cuGraphLaunch", executable, STREAM)


def sync_in_loop():
    for _ in range(300):
        LAUNCH["step"]()  # launch
        CUDA.cuStreamSynchronize(STREAM)  # wait
        sum(range(3_000))


def slow_host():
    for _ in range(30):
        LAUNCH["step"]()  # before
        time.sleep(0.005)
        LAUNCH["step"]()  # after


def prepared():
    # The GPU works for 4 ms in a round.
    time.sleep(0.012)
    return ctypes.create_string_buffer(64)


def batches_now():
    for _ in range(40):
        yield prepared()


def batches_ahead():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        ahead = [pool.submit(prepared) for _ in range(40)]
        time.sleep(0.2)
        for batch in ahead:
            yield batch.result()


def train_on(batches):
    target = memory(64)
    for batch in batches:
        CUDA.cuMemcpyHtoDAsync_v2(target, batch, 64, STREAM)  # load
        for _ in range(20):
            LAUNCH["step"]()  # train


def slow_loader():
    train_on(batches_now())


def slow_loader_mended():
    train_on(batches_ahead())


def pageable_copies():
    source, target = ctypes.create_string_buffer(BYTES), memory(BYTES)
    for _ in range(200):
        CUDA.cuMemcpyHtoDAsync_v2(target, source, BYTES, STREAM)  # copy
        LAUNCH["step"]()


def mixed_copies():
    source, target, pinned = ctypes.create_string_buffer(BYTES), memory(BYTES), ctypes.c_void_p()
    call("cuMemAllocHost_v2", ctypes.byref(pinned), BYTES)
    for _ in range(100):
        CUDA.cuMemcpyHtoDAsync_v2(target, source, BYTES, STREAM)  # copy
        for _ in range(3):
            CUDA.cuMemcpyHtoDAsync_v2(target, pinned, BYTES, STREAM)
        LAUNCH["step"]()


def take_turns(flags):
    """Small kernels on the default stream and on another one, without any dependence."""
    other = ctypes.c_void_p()
    call("cuStreamCreate", ctypes.byref(other), flags)
    function = LAUNCH["step"].args[0]
    for _ in range(200):
        CUDA.cuLaunchKernel(function, 8, 1, 1, 256, 1, 1, 0, None, None, None)  # default
        CUDA.cuLaunchKernel(function, 8, 1, 1, 256, 1, 1, 0, other, None, None)


def default_stream():
    take_turns(0)


def default_stream_mended():
    take_turns(1)


def small_copies():
    source, target = ctypes.c_void_p(), memory(BYTES)
    call("cuMemAllocHost_v2", ctypes.byref(source), BYTES)
    for _ in range(40_000):
        CUDA.cuMemcpyHtoDAsync_v2(target, source, 8, STREAM)  # copy


def small_grid():
    small = LAUNCH["step"].args
    for _ in range(200):
        CUDA.cuLaunchKernel(small[0], 4, *small[2:])


def small_blocks():
    small = LAUNCH["step"].args
    best, grid = ctypes.c_int(), ctypes.c_int()
    call("cuOccupancyMaxPotentialBlockSize", ctypes.byref(grid), ctypes.byref(best), small[0], None, ctypes.c_size_t(0), 0)
    print("best block", best.value)
    for _ in range(200):
        CUDA.cuLaunchKernel(small[0], 2640, 1, 1, 32, *small[5:])


def slow_rank():
    for _ in range(100):
        LAUNCH["step"]()
        if REDUCE == 50_000:
            time.sleep(0.00085)
        LAUNCH["ncclDevKernel_AllReduce"]()
        CUDA.cuStreamSynchronize(STREAM)


def pageable_copies_mended():
    source, target = ctypes.c_void_p(), memory(BYTES)
    call("cuMemAllocHost_v2", ctypes.byref(source), BYTES)
    for _ in range(40):
        CUDA.cuMemcpyHtoDAsync_v2(target, source, BYTES, STREAM)
        for _ in range(20):
            LAUNCH["step"]()


def allocator_churn():
    for _ in range(40):
        LAUNCH["step"]()
        addresses = [ctypes.c_uint64() for _ in range(200)]
        for address in addresses:
            CUDA.cuMemAlloc_v2(ctypes.byref(address), BYTES)  # allocate
        for address in addresses:
            CUDA.cuMemFree_v2(address)


def late_modules():
    busy()
    for number in range(60):
        module = ctypes.c_void_p()
        source = PTX.replace("tiny", "tiny%d" % number) + "//\n" * 300_000
        CUDA.cuStreamSynchronize(STREAM)
        CUDA.cuModuleLoadData(ctypes.byref(module), source.encode())  # load
        LAUNCH["step"]()


globals()[sys.argv[1]]()
call("cuCtxSynchronize")
