/* Launches as many kernels as each number on stdin says, and says when that is done. Ends with the
 * code that the argument says. */
#include "driver.h"

int main(int argc, char **argv)
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
    return argc > 1 ? atoi(argv[1]) : 0;
}
