/* Copies between two devices: three by cuMemcpyPeerAsync one way, two by cuMemcpyDtoD the other way, and one that
 * stays on a device. */
#include "driver.h"

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                           CUstream stream);

int main(void)
{
    Cuda cuda = cuda_start();
    CUcontext second;
    CUdeviceptr here, near, there;
    OK(cuMemAlloc_v2(&here, 1 << 20));
    OK(cuMemAlloc_v2(&near, 1 << 20));
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxSetCurrent(second));
    OK(cuMemAlloc_v2(&there, 1 << 20));
    OK(cuCtxSetCurrent(cuda.context));
    for (int i = 0; i < 3; i++)
        OK(cuMemcpyPeerAsync(there, second, here, cuda.context, 1 << 20, NULL));
    for (int i = 0; i < 2; i++)
        OK(cuMemcpyDtoD_v2(here, there, 1 << 19));
    OK(cuMemcpyDtoD_v2(near, here, 1000));
    OK(cuCtxSynchronize());
    return 0;
}
