"""CuPy: array kernels, a raw kernel, copies both ways, a captured stream replayed."""
import cupy
import numpy

raw = cupy.RawKernel('extern "C" __global__ void add_one(float *p, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] += 1; }', "add_one")
n = 1 << 16
x = cupy.asarray(cupy.arange(n, dtype=cupy.float32).get())
for _ in range(20):
    raw((n // 256,), (256,), (x, numpy.int32(n)))  # LAUNCHES 20
y = x * 2 + 1
print("sum", float(y.sum()))
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    z = x.copy()
    stream.synchronize()
    stream.begin_capture()
    for _ in range(10):
        raw((n // 256,), (256,), (z, numpy.int32(n)))  # LAUNCHES 250, by 25 replays of the graph
    graph = stream.end_capture()
    for _ in range(25):
        graph.launch(stream)
    stream.synchronize()
print("last", float(z[-1]))
