/* held SECONDS: launches a kernel about every 0.2 ms. Prints how many launches there were, and how many of the
   calls took over 40 ms. */
#include "driver.h"
#include <time.h>
#include <unistd.h>

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

int main(int argc, char **argv)
{
    Cuda cuda = cuda_start();
    double until = now_ms() + atof(argc > 1 ? argv[1] : "1") * 1e3, begun;
    long launches = 0, held = 0;
    while ((begun = now_ms()) < until) {
        launch(cuda.first, NULL);
        held += now_ms() - begun > 40;
        launches += 1;
        usleep(200);
    }
    OK(cuCtxSynchronize());
    printf("%ld %ld\n", launches, held);
    return 0;
}
