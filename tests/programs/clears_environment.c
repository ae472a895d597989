/* Clears its environment before its first call of the driver, and launches three times; with an argument, becomes
   that program instead. */
#define _GNU_SOURCE
#include "driver.h"
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    /* The simulated driver's folder stays with the loader, which read it at the start. */
    clearenv();
    if (argc > 1) {
        execve(argv[1], argv + 1, environ);
        perror(argv[1]);
        return 96;
    }
    Cuda cuda = cuda_start();
    for (int i = 0; i < 3; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    puts("done");
    return 0;
}
