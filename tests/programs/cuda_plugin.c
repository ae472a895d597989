/* A plugin that uses CUDA, from its own scope. */
#include "driver.h"

int plugin_launches(void)
{
    Cuda cuda = cuda_start();
    launch(cuda.first, NULL);
    launch(cuda.second, NULL);
    OK(cuCtxSynchronize());
    OK(cuModuleUnload(cuda.module));
    OK(cuDevicePrimaryCtxRelease_v2(cuda.device));
    return 2;
}
