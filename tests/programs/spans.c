/* What becomes a span: a kernel of 300 us among shorter ones, a copy, waits, a launch that is refused. */
#include "driver.h"

static const char *const LONG = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                ".visible .entry long_kernel(.param .u64 unused)\n{\n"
                                "// sim.duration_ns = 300000\n ret;\n}\n";

int main(void)
{
    Cuda cuda = cuda_start();
    CUmodule module;
    CUfunction slow;
    CUstream stream;
    CUdeviceptr memory;
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    size_t bytes = 8 << 20;
    void *host = calloc(1, bytes);
    OK(cuModuleLoadData(&module, LONG));
    OK(cuModuleGetFunction(&slow, module, "long_kernel"));
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&memory, bytes));
    for (int i = 0; i < 5; i++)
        launch(cuda.first, stream);
    launch(slow, stream);
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyHtoD_v2(memory, host, bytes));
    OK(cuMemsetD8_v2(memory, 1, bytes));
    if (cuLaunchKernel(cuda.first, 0, 0, 0, 4096, 1, 1, 0, NULL, parameters, NULL) == 0)
        return 1;
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(memory));
    free(host);
    return 0;
}
