/* Stops its parent, the collector, launches as often as the argument says, and lets it go on. */
#include "driver.h"
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    Cuda cuda = cuda_start();
    long count = argc > 1 ? atol(argv[1]) : 1000;
    kill(getppid(), SIGSTOP);
    for (long i = 0; i < count; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    kill(getppid(), SIGCONT);
    return 0;
}
