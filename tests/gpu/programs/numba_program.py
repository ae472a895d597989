"""numba: kernels compiled from Python, copies both ways."""
import numpy

# numba 0.6x asks for a name that numpy 2.5 dropped; the program is about kernels, not about that.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack

from numba import cuda


@cuda.jit
def add_one(a):
    i = cuda.grid(1)
    if i < a.size:
        a[i] += 1


host = numpy.zeros(4096, numpy.float32)
device = cuda.to_device(host)
for _ in range(40):
    add_one[16, 256](device)  # LAUNCHES 40
cuda.synchronize()
print("sum", float(device.copy_to_host().sum()))
