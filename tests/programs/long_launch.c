/* Two launches of a kernel; each call returns after 4.5 seconds. */
#include "driver.h"

int main(void)
{
    CUmodule module;
    CUfunction kernel;
    CUstream stream;
    cuda_start();
    OK(cuModuleLoadData(&module, ".version 6.0\n.target sm_50\n.address_size 64\n"
                                 ".visible .entry long_launch(.param .u64 unused)\n{\n"
                                 "// sim.launch_ns = 4500000000\n ret;\n}\n"));
    OK(cuModuleGetFunction(&kernel, module, "long_launch"));
    OK(cuStreamCreate(&stream, 0));
    launch(kernel, stream);
    launch(kernel, stream);
    OK(cuCtxSynchronize());
    return 0;
}
