/* Closes every descriptor but its own, opens others in their place, and goes on launching. */
#include "driver.h"
#include <fcntl.h>
#include <unistd.h>

int main(void)
{
    Cuda cuda = cuda_start();
    launch(cuda.first, NULL);
    for (int i = 3; i < 256; i++)
        close(i);
    for (int i = 0; i < 8; i++)
        if (open("/dev/null", O_RDWR) < 0)
            return 1;
    for (int i = 0; i < 9; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    return 0;
}
