/* Launches a kernel of 20 us every five milliseconds for so many seconds, once a kernel of the same name that takes 50 ms,
 * and then the first one again for a second. */
#include "driver.h"
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static CUfunction kernel(int ns)
{
    char ptx[512];
    snprintf(ptx, sizeof ptx,
             ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry uneven_kernel(.param .u64 unused)\n{\n"
             "// sim.duration_ns = %d\n ret;\n}\n",
             ns);
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&function, module, "uneven_kernel"));
    return function;
}

static void launch_for(CUfunction function, double seconds)
{
    struct timespec pause = {0, 5000000};
    for (double begin = now(); now() < begin + seconds;) {
        launch(function, NULL);
        OK(cuCtxSynchronize());
        nanosleep(&pause, NULL);
    }
}

int main(int argc, char **argv)
{
    cuda_start();
    CUfunction usual = kernel(20000), slow = kernel(50000000);
    launch_for(usual, argc > 1 ? atof(argv[1]) : 3);
    launch(slow, NULL);
    OK(cuCtxSynchronize());
    launch_for(usual, 1);
    return 0;
}
