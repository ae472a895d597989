/* As many launches as the argument says, fast. */
#include "driver.h"

int main(int argc, char **argv)
{
    Cuda cuda = cuda_start();
    long count = argc > 1 ? atol(argv[1]) : 1000;
    for (long i = 0; i < count; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    return 0;
}
