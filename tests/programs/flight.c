/* Launches a marker kernel a hundred times, then another every five milliseconds until the third
   second (or the second argument's), and says how many there were. Then: end, or crash, or wait for
   its stdin to be closed and end. */
#include "driver.h"
#include <signal.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "end";
    double seconds = argc > 2 ? atof(argv[2]) : 3;
    Cuda cuda = cuda_start();
    double start = now();
    for (int i = 0; i < 100; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    struct timespec pause = {0, 5000000};
    int count = 100;
    for (; now() < start + seconds; count++) {
        launch(cuda.second, NULL);
        nanosleep(&pause, NULL);
    }
    OK(cuCtxSynchronize());
    printf("%d\n", count);
    fflush(stdout);
    if (strcmp(how, "crash") == 0) {
        raise(SIGSEGV);
    } else if (strcmp(how, "wait") == 0) {
        getchar();
    }
    return 0;
}
