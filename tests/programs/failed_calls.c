/* Calls that fail, and calls that are answered with an error by design. The argument says which:
 * "memory"   memory is refused, cached pieces are given back, and it is asked for again (as PyTorch's allocator does);
 * "refused"  a launch with a shape that no device takes, a file that is not there, an allocation, each several times;
 * "answers"  only questions whose answer is an error;
 * "binaries" kernels are looked up that have no code for the device: NCCL's, as it looks for them, and one of the program's;
 * "polled"   a kernel writes where it must not, and cuEventQuery is the first to tell. */
#include "driver.h"

CUresult cuModuleLoad(CUmodule *module, const char *path);
CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuStreamQuery(CUstream stream);
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
CUresult cuLibraryLoadData(void **library, const void *image, void *options, void *values, unsigned count,
                           void *library_options, void *library_values, unsigned library_count);
CUresult cuLibraryGetKernel(void **kernel, void *library, const char *name);
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value);

static const char *const TEXT = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                ".visible .entry slow() {\n// sim.duration_ns = 20000000\n ret;\n}\n"
                                ".visible .entry bad_store() {\n// sim.duration_ns = 20000000\n// sim.fault = 700\n ret;\n}\n";

/* Line numbers do not matter; that it is one function does. */
static int memory(void)
{
    CUdeviceptr cached[3], wanted = 0;
    for (int i = 0; i < 3; i++)
        OK(cuMemAlloc_v2(&cached[i], 20 << 20));
    if (cuMemAlloc_v2(&wanted, 40 << 20) != 2)
        return 2;
    for (int i = 0; i < 3; i++)
        OK(cuMemFree_v2(cached[i]));
    OK(cuMemAlloc_v2(&wanted, 40 << 20));
    /* What there is not at all is refused for good. */
    return cuMemAlloc_v2(&cached[0], (size_t)1 << 40) == 2 ? 0 : 3;
}

static int refused(CUfunction function, CUmodule module)
{
    for (int i = 0; i < 3; i++) {
        if (cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL) == 0)
            return 2;
        if (cuModuleLoad(&module, "/nowhere/model.cubin") == 0)
            return 3;
    }
    if (cuFuncSetAttribute(function, 8, 1 << 30) == 0)
        return 4;
    return cuStreamSynchronize((CUstream)0x1234560) == 0 ? 5 : 0;
}

static int answers(CUcontext first, CUmodule module, CUfunction slow)
{
    CUevent event;
    CUfunction function;
    CUcontext second;
    OK(cuEventCreate(&event, 0));
    OK(cuLaunchKernel(slow, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    OK(cuEventRecord(event, NULL));
    if (cuEventQuery(event) != 600 || cuStreamQuery(NULL) != 600)
        return 2;
    for (int i = 0; i < 4; i++)
        if (cuModuleGetFunction(&function, module, "of_another_module") != 500)
            return 3;
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxSetCurrent(first));
    OK(cuCtxEnablePeerAccess(second, 0));
    if (cuCtxEnablePeerAccess(second, 0) != 704)
        return 4;
    OK(cuCtxSynchronize());
    return cuEventQuery(event);
}

/* Of the program's own too if the second argument is "own". */
static int binaries(int own)
{
    static const char *const OF_NCCL = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                       ".visible .entry _Z29ncclSymkDevKernel_AllGather_LDPf() {\n// sim.no_binary = 1\n ret;\n}\n"
                                       ".visible .entry _Z7my_stepPf() {\n// sim.no_binary = 1\n ret;\n}\n";
    void *library, *kernel;
    OK(cuLibraryLoadData(&library, OF_NCCL, NULL, NULL, 0, NULL, NULL, 0));
    for (int i = 0; i < 4; i++)
        if (cuLibraryGetKernel(&kernel, library, "_Z29ncclSymkDevKernel_AllGather_LDPf") != 209)
            return 2;
    return own && cuLibraryGetKernel(&kernel, library, "_Z7my_stepPf") != 209 ? 3 : 0;
}

static int polled(CUfunction bad_store)
{
    CUevent event;
    CUresult status;
    OK(cuEventCreate(&event, 0));
    OK(cuLaunchKernel(bad_store, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    /* The kernel runs for far longer than it takes to come here: the query is the first that can tell. */
    if (cuEventRecord(event, NULL) != 0)
        return 2;
    while ((status = cuEventQuery(event)) == 600)
        ;
    if (status != 700)
        return 3;
    for (int i = 0; i < 5; i++)
        if (cuEventQuery(event) != 700)
            return 4;
    return 0;
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    Cuda cuda = cuda_start();
    CUmodule module;
    CUfunction slow, bad_store;
    OK(cuModuleLoadData(&module, TEXT));
    OK(cuModuleGetFunction(&slow, module, "slow"));
    OK(cuModuleGetFunction(&bad_store, module, "bad_store"));
    if (!strcmp(which, "memory"))
        return memory();
    if (!strcmp(which, "refused"))
        return refused(cuda.first, module);
    if (!strcmp(which, "answers"))
        return answers(cuda.context, module, slow);
    if (!strcmp(which, "binaries"))
        return binaries(argc > 2);
    return polled(bad_store);
}
