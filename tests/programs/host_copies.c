/* Copies from host to host, which no device does: three that wait, four that do not, one at the end; a kernel before
 * and after them, and one copy to the device by the entry that does not say where to. */
#include "driver.h"

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);

int main(void)
{
    static char from[4096], to[4096];
    Cuda cuda = cuda_start();
    CUdeviceptr device, source = (CUdeviceptr)(size_t)from, target = (CUdeviceptr)(size_t)to;
    OK(cuMemAlloc_v2(&device, sizeof from));
    launch(cuda.first, NULL);
    for (int i = 0; i < 3; i++)
        OK(cuMemcpy(target, source, sizeof from));
    for (int i = 0; i < 4; i++)
        OK(cuMemcpyAsync(target, source, sizeof from, NULL));
    OK(cuMemcpy(device, source, sizeof from));
    launch(cuda.second, NULL);
    OK(cuCtxSynchronize());
    /* Nothing comes behind this one but a wait. */
    OK(cuMemcpyAsync(target, source, sizeof from, NULL));
    OK(cuCtxSynchronize());
    return 0;
}
