/* Queues kernels of 5 ms for a second, right after short ones, and is killed in the middle. */
#include <signal.h>
#include <unistd.h>

#include "driver.h"

static const char long_kernel[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                                  ".visible .entry long_kernel()\n{\n// sim.duration_ns = 5000000\n ret;\n}\n";

int main(void)
{
    Cuda cuda = cuda_start();
    CUmodule module;
    CUfunction kernel;
    OK(cuModuleLoadData(&module, long_kernel));
    OK(cuModuleGetFunction(&kernel, module, "long_kernel"));
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    usleep(200000);
    for (int i = 0; i < 200; i++)
        launch(kernel, NULL);
    usleep(600000);
    kill(getpid(), SIGKILL);
    return 0;
}
