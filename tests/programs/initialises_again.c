/* Asks for CUDA until there is some, as one does that waits for the machine to be ready; then three launches. */
#include "driver.h"

int main(void)
{
    int refused = 0;
    while (cuInit(0) != 0)
        if (++refused == 10)
            return 2;
    printf("refused %d\n", refused);
    Cuda cuda = cuda_start();
    for (int i = 0; i < 3; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    return 0;
}
