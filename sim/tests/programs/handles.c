/* Destroyed, foreign and made-up handles are errors, and never more than that. */
#include "sim.h"

enum { INVALID_VALUE = 1, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_INITIALIZED = 3 };

int main(void)
{
    EQ(cuDeviceGetCount(&(int){0}), NOT_INITIALIZED);
    start();
    CUstream stream, other;
    CUevent event;
    CUgraph graph;
    CUdeviceptr memory;
    CUcontext extra;
    OK(cuStreamCreate(&stream, 0));
    OK(cuStreamDestroy_v2(stream));
    EQ(cuStreamSynchronize(stream), INVALID_HANDLE);
    EQ(cuStreamDestroy_v2(stream), INVALID_HANDLE);
    EQ(launch(brief, stream), INVALID_HANDLE);
    OK(cuStreamCreate(&other, 0));
    CHECK(other != stream);
    EQ(cuStreamQuery(stream), INVALID_HANDLE);

    OK(cuEventCreate(&event, 0));
    EQ(cuStreamQuery((CUstream)event), INVALID_HANDLE);
    EQ(cuEventRecord((CUevent)other, other), INVALID_HANDLE);
    OK(cuEventDestroy_v2(event));
    EQ(cuEventQuery(event), INVALID_HANDLE);

    void *made_up[] = {(void *)8, (void *)0x1234567, &event, (void *)~0ull, (char *)other + 1, (char *)other + 16};
    for (unsigned i = 0; i < sizeof made_up / sizeof *made_up; i++) {
        EQ(cuStreamQuery(made_up[i]), INVALID_HANDLE);
        EQ(launch(made_up[i], NULL), INVALID_HANDLE);
        EQ(cuCtxSetCurrent(made_up[i]), INVALID_CONTEXT);
        CHECK(cuGraphDestroy(made_up[i]) != 0);
        CHECK(cuModuleUnload(made_up[i]) != 0);
        CHECK(cuMemFree_v2((CUdeviceptr)(uintptr_t)made_up[i]) != 0);
    }
    OK(cuStreamBeginCapture_v2(other, 0));
    OK(cuStreamEndCapture(other, &graph));
    OK(cuGraphDestroy(graph));
    CHECK(cuGraphDestroy(graph) != 0);

    OK(cuMemAlloc_v2(&memory, 16));
    OK(cuMemFree_v2(memory));
    EQ(cuMemFree_v2(memory), INVALID_VALUE);
    char bytes[16];
    EQ(cuMemcpyHtoD_v2(memory, bytes, 16), INVALID_VALUE);

    EQ(launch(takes, NULL), INVALID_VALUE); /* It wants arguments. */
    EQ(cuLaunchKernel(brief, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    EQ(cuLaunchKernel(brief, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    OK(cuModuleUnload(module));
    EQ(launch(brief, NULL), INVALID_HANDLE);

    /* A context takes everything in it along. */
    OK(cuCtxCreate_v2(&extra, 0, 0));
    OK(cuStreamCreate(&stream, 0));
    OK(cuMemAlloc_v2(&memory, 16));
    OK(cuCtxDestroy_v2(extra));
    EQ(cuCtxSetCurrent(extra), INVALID_CONTEXT);
    EQ(cuStreamQuery(stream), INVALID_HANDLE);
    OK(cuCtxSetCurrent(context));
    EQ(cuMemcpyHtoD_v2(memory, bytes, 16), INVALID_VALUE);
    OK(cuDevicePrimaryCtxRelease_v2(device));
    EQ(cuCtxSynchronize(), INVALID_CONTEXT);
    return 0;
}
