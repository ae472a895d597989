/* Holds a range open over all launches that stdin asks for, and says when each lot is done. Built with NVIDIA's headers. */
#include <nvtx3/nvToolsExt.h>
#include "driver.h"

int main(void)
{
    Cuda cuda = cuda_start();
    long count;
    nvtxRangePushA("held");
    while (scanf("%ld", &count) == 1) {
        for (long i = 0; i < count; i++)
            launch(cuda.first, NULL);
        printf("%ld\n", count);
        fflush(stdout);
    }
    OK(cuCtxSynchronize());
    nvtxRangePop();
    return 0;
}
