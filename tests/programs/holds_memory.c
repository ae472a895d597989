/* Allocates five times, frees two of them, launches a kernel, and waits for its stdin to be closed. */
#include "driver.h"

int main(void)
{
    Cuda cuda = cuda_start();
    CUdeviceptr held[5];
    for (int i = 0; i < 5; i++)
        OK(cuMemAlloc_v2(&held[i], 1 << 20));
    for (int i = 0; i < 2; i++)
        OK(cuMemFree_v2(held[i]));
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    puts("ready");
    fflush(stdout);
    getchar();
    return 0;
}
