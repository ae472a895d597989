/* Launches as many kernels as each number on stdin says, and says when that is done. */
#include "driver.h"

int main(void)
{
    Cuda cuda = cuda_start();
    long count;
    while (scanf("%ld", &count) == 1) {
        for (long i = 0; i < count; i++)
            launch(cuda.first, NULL);
        printf("%ld\n", count);
        fflush(stdout);
    }
    OK(cuCtxSynchronize());
    return 0;
}
