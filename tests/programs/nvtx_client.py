"""The Python package nvtx around launches by ctypes: decorators, context managers, domains, start and end."""
import ctypes

import nvtx

cuda = ctypes.CDLL("libcuda.so.1")
PTX = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry first_kernel(.param .u64 unused)
{
// sim.duration_ns = 20000
 ret;
}
"""


def check(code):
    assert code == 0, code


class Device:
    def __init__(self):
        check(cuda.cuInit(0))
        context, module, self.function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        check(cuda.cuCtxSetCurrent(context))
        check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
        check(cuda.cuModuleGetFunction(ctypes.byref(self.function), module, b"first_kernel"))

    def launch(self):
        unused = ctypes.c_uint64()
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(unused))
        check(cuda.cuLaunchKernel(self.function, 1, 1, 1, 32, 1, 1, 0, None, parameters, None))


device = Device()


@nvtx.annotate("decorated", color="blue")
def decorated():
    device.launch()
    with nvtx.annotate("inside", domain="a package", category="io"):
        device.launch()


decorated()
decorated()
number = nvtx.start_range("started")
device.launch()
nvtx.end_range(number)
nvtx.mark("a moment")
nvtx.push_range("pushed")
device.launch()
nvtx.pop_range()
check(cuda.cuCtxSynchronize())
