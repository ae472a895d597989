/* The process's first device record is that of the second launch. Only the first launch, which fails, looks
   the driver's function up, and so keeps a look-up's error of the program's own. */
#include "life.h"

int main(void)
{
    Cuda cuda = cuda_start();
    int refused = cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    printf("refused: %d\n", refused != 0);
    launch_and_check(cuda.first, NULL);
    OK(cuCtxSynchronize());
    return 0;
}
