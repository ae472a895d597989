/* Queues kernels of 5 ms for a second, right after short ones, and is killed in the middle; or, with an argument, puts a fill among them and
 * ends when all have. */
#include <signal.h>
#include <unistd.h>

#include "driver.h"

static const char long_kernel[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                                  ".visible .entry long_kernel()\n{\n// sim.duration_ns = 5000000\n ret;\n}\n";

int main(int argc, char **argv)
{
    Cuda cuda = cuda_start();
    CUmodule module;
    CUfunction kernel;
    CUdeviceptr memory;
    (void)argv;
    OK(cuMemAlloc_v2(&memory, 64));
    OK(cuModuleLoadData(&module, long_kernel));
    OK(cuModuleGetFunction(&kernel, module, "long_kernel"));
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    usleep(200000);
    for (int i = 0; i < 200; i++) {
        launch(kernel, NULL);
        if (argc > 1 && i == 77)
            OK(cuMemsetD8_v2(memory, 1, 64));
    }
    if (argc > 1) {
        OK(cuCtxSynchronize());
        return 0;
    }
    usleep(600000);
    kill(getpid(), SIGKILL);
    return 0;
}
