/* A launch that the driver refuses, between two that it takes. */
#include "driver.h"

int main(void)
{
    Cuda cuda = cuda_start();
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    launch(cuda.first, NULL);
    CUresult refused = cuLaunchKernel(cuda.first, 0, 0, 0, 4096, 1, 1, 0, NULL, parameters, NULL);
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    return refused == 0 ? 1 : 0;
}
