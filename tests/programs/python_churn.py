"""Eight threads make functions, launch from them and drop them, so that code comes to lie where other code lay.

    python_churn.py ROUNDS

In each round I of a thread the function is f<I % 7> of gen<I % 13>.py, it launches on line I % 50 + 2, and it stands
I % 40 + 1 deep: what is told of a launch is true if one I says all of it. CPython 3.8 to 3.14, with a GIL or without.
"""

import ctypes
import gc
import sys
import threading

ROUNDS, THREADS = int(sys.argv[1]), 8
CUDA = ctypes.CDLL("libcuda.so.1")
CUDA.cuLaunchKernel.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
CONTEXT, MODULE, KERNEL = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry kernel() { ret; }\n"
for status in (
    CUDA.cuInit(0),
    CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(CONTEXT), 0),
    CUDA.cuCtxSetCurrent(CONTEXT),
    CUDA.cuModuleLoadData(ctypes.byref(MODULE), PTX),
    CUDA.cuModuleGetFunction(ctypes.byref(KERNEL), MODULE, b"kernel"),
):
    assert status == 0, status
done = []


def launch():
    assert CUDA.cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0


def work():
    assert CUDA.cuCtxSetCurrent(CONTEXT) == 0
    for i in range(ROUNDS):
        name, known = "f%d" % (i % 7), {"launch": launch}
        text = "\n" * (i % 50) + "def %s(n):\n  return launch() if n == 0 else %s(n - 1)\n" % (name, name)
        exec(compile(text, "gen%d.py" % (i % 13), "exec"), known)
        known[name](i % 40)
        if i % 100 == 0:
            gc.collect()
    done.append(True)


threads = [threading.Thread(target=work) for _ in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(done) == THREADS and CUDA.cuCtxSynchronize() == 0
