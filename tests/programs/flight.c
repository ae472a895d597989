/* Launches a marker kernel a hundred times, then another every five milliseconds until the third
   second, and says where it is. Then: end, or crash, or wait for a line and end. */
#include "driver.h"
#include <signal.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void say(const char *what)
{
    printf("%s\n", what);
    fflush(stdout);
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
    say("marked");
    struct timespec pause = {0, 5000000};
    while (now() < start + seconds) {
        launch(cuda.second, NULL);
        nanosleep(&pause, NULL);
    }
    OK(cuCtxSynchronize());
    say("done");
    if (strcmp(how, "crash") == 0) {
        raise(SIGSEGV);
    } else if (strcmp(how, "wait") == 0) {
        char line[16];
        if (fgets(line, sizeof line, stdin) == NULL)
            return 9;
    }
    return 0;
}
