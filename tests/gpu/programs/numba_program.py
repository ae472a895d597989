"""numba: kernels compiled from Python, copies both ways."""
import numpy
from numba import cuda


@cuda.jit
def add_one(a):
    i = cuda.grid(1)
    if i < a.size:
        a[i] += 1


host = numpy.zeros(4096, numpy.float32)
device = cuda.to_device(host)
for _ in range(40):
    add_one[16, 256](device)
cuda.synchronize()
print("sum", float(device.copy_to_host().sum()))
