/* One kernel that runs for most of a second, between short ones on another stream. */
#include "driver.h"

static const char *const LONG = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                ".visible .entry long_kernel(.param .u64 unused)\n{\n"
                                "// sim.duration_ns = 700000000\n ret;\n}\n";

int main(void)
{
    Cuda cuda = cuda_start();
    CUmodule module;
    CUfunction function;
    CUstream one, other;
    OK(cuModuleLoadData(&module, LONG));
    OK(cuModuleGetFunction(&function, module, "long_kernel"));
    OK(cuStreamCreate(&one, 1));
    OK(cuStreamCreate(&other, 1));
    launch(cuda.first, other);
    launch(function, one);
    for (int i = 0; i < 20; i++)
        launch(cuda.first, other);
    OK(cuCtxSynchronize());
    launch(cuda.second, other);
    OK(cuCtxSynchronize());
    return 0;
}
