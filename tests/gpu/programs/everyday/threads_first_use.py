"""A ThreadPoolExecutor whose threads are the first to use CUDA: threads_first_use.py torch|FATBIN THREADS

FATBIN is driver_kernels.cu's: the threads call cuInit at the same moment, each loads the code and launches."""
import ctypes
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

WHAT, THREADS = sys.argv[1], int(sys.argv[2])
LAUNCHES = 9
at_once = threading.Barrier(THREADS)


def check(status):
    if status:
        raise RuntimeError(f"the driver returned {status}")


def driver(image, number):
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, module, function, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    at_once.wait()
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuModuleLoadData(ctypes.byref(module), image))
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"add"))
    check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4)))
    check(cuda.cuMemsetD32_v2(memory, number, ctypes.c_size_t(1)))
    by = ctypes.c_int(1)
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(by))
    for _ in range(LAUNCHES):
        check(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None))
    check(cuda.cuCtxSynchronize())
    value = ctypes.c_int()
    check(cuda.cuMemcpyDtoH_v2(ctypes.byref(value), memory, ctypes.c_size_t(4)))
    return value.value


def with_torch(number):
    import torch
    at_once.wait()
    x = torch.zeros(256, device="cuda")
    for _ in range(LAUNCHES):
        x.add_(number)
    torch.cuda.synchronize()
    return x[0].item()


def main():
    with ThreadPoolExecutor(THREADS) as pool:
        if WHAT == "torch":
            import torch  # The import alone uses no CUDA.
            assert not torch.cuda.is_initialized()
            print("sums", list(pool.map(with_torch, range(THREADS))))
            return
        with open(WHAT, "rb") as file:
            image = file.read()
        print("values", list(pool.map(lambda number: driver(image, number), range(THREADS))))
    launches = THREADS * LAUNCHES
    print(f"EXPECT launches={launches} captured_launches=0 graph_launches=0 kernel_calls={launches} graph_node_calls=0 copies={THREADS} memsets={THREADS}")


main()
