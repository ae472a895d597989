/* A kernel that faults: what is before it ends and is recorded, what is behind it is not; the error stays. */
#include "sim.h"

static const char FAULTY[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                             ".visible .entry faulty() {\n // sim.duration_ns = 20000000\n // sim.fault = 700\n ret; }\n";

int main(void)
{
    start();
    start_client();
    OK(cuptiActivityEnable(CONCURRENT_KERNEL));
    CUfunction faulty;
    CUmodule second;
    CUstream stream, other;
    OK(cuModuleLoadData(&second, FAULTY));
    OK(cuModuleGetFunction(&faulty, second, "faulty"));
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamCreate(&other, 1));
    OK(launch(brief, stream));
    OK(cuStreamSynchronize(stream));
    OK(launch(faulty, stream));
    OK(launch(brief, stream));
    OK(launch(lengthy, other));
    EQ(cuStreamSynchronize(other), 700);
    EQ(launch(brief, stream), 700);
    EQ(cuCtxSynchronize(), 700);
    EQ(cuStreamQuery(other), 700);
    CUdeviceptr memory;
    EQ(cuMemAlloc_v2(&memory, 16), 700);
    OK(cuptiActivityFlushAll(1));
    EQ(record_count, 1); /* The first brief one. */
    /* Another context is as good as before. */
    OK(cuCtxCreate_v2(&context, 0, device));
    OK(cuMemAlloc_v2(&memory, 16));
    OK(cuCtxSynchronize());
    return 0;
}
