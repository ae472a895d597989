/* Kernels in flight on two streams when the end comes that the argument names: "fault", a kernel writes where it must not;
 * "leave", the same, and the program leaves without asking what became of it; "kill", SIGKILL while the device is busy;
 * "idle", short kernels one by one on a device that is idle between them, nothing waits for them, and SIGINT. */
#include "driver.h"
#include <signal.h>
#include <unistd.h>

static const char *const TEXT = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                ".visible .entry steady() {\n// sim.duration_ns = 20000\n ret;\n}\n"
                                ".visible .entry spin() {\n// sim.duration_ns = 1000000000\n ret;\n}\n"
                                ".visible .entry lengthy() {\n// sim.duration_ns = 20000000000\n ret;\n}\n"
                                ".visible .entry bad_store() {\n// sim.duration_ns = 20000\n// sim.fault = 700\n ret;\n}\n";

static CUfunction steady, spin, lengthy, bad_store;

static void on(CUfunction function, CUstream stream)
{
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "fault";
    cuda_start();
    CUmodule module;
    CUstream first, second;
    OK(cuModuleLoadData(&module, TEXT));
    OK(cuModuleGetFunction(&steady, module, "steady"));
    OK(cuModuleGetFunction(&spin, module, "spin"));
    OK(cuModuleGetFunction(&lengthy, module, "lengthy"));
    OK(cuModuleGetFunction(&bad_store, module, "bad_store"));
    OK(cuStreamCreate(&first, 1));
    OK(cuStreamCreate(&second, 1));
    for (int i = 0; i < 4; i++)
        on(steady, first);
    OK(cuStreamSynchronize(first));
    if (!strcmp(how, "kill")) {
        on(lengthy, second);
        on(steady, second);
        kill(getpid(), SIGKILL);
    }
    if (!strcmp(how, "idle")) {
        for (int i = 0; i < 200; i++) {
            on(steady, first);
            usleep(2000);
        }
        kill(getpid(), SIGINT);
    }
    /* What follows is accepted before the bad kernel runs. */
    on(spin, first);
    on(bad_store, first);
    for (int i = 0; i < 3; i++)
        on(steady, first);
    on(lengthy, second);
    if (cuStreamSynchronize(first) != 700)
        return 4;
    if (cuLaunchKernel(steady, 1, 1, 1, 32, 1, 1, 0, first, NULL, NULL) != 700)
        return 5;
    if (!strcmp(how, "leave"))
        _exit(3);
    return cuCtxSynchronize() == 700 ? 3 : 6;
}
