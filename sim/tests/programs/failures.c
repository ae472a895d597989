/* GPUTRACE_SIM_FAIL="cuMemAlloc_v2:2=2,cuLaunchKernel:*=700,cuStreamQuery_ptsz:1=999" */
#include "sim.h"

int main(void)
{
    start();
    CUdeviceptr memory;
    OK(cuMemAlloc_v2(&memory, 16));
    EQ(cuMemAlloc_v2(&memory, 16), 2);
    OK(cuMemAlloc_v2(&memory, 16));
    for (int i = 0; i < 3; i++) EQ(launch(brief, NULL), 700);
    OK(cuLaunchKernel_ptsz(brief, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)); /* Another function. */
    OK(cuCtxSynchronize());
    OK(cuStreamQuery(NULL));
    EQ(cuStreamQuery_ptsz(NULL), 999);
    OK(cuStreamQuery_ptsz(NULL));
    return 0;
}
