/* A graph of five kernels and a copy, captured once and launched twenty times. */
#include "driver.h"

int main(void)
{
    Cuda cuda = cuda_start();
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr memory;
    void *host;
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&memory, 4096));
    OK(cuMemAllocHost_v2(&host, 4096));
    launch(cuda.second, stream);
    OK(cuStreamBeginCapture_v2(stream, 1));
    for (int i = 0; i < 5; i++)
        launch(cuda.first, stream);
    OK(cuMemcpyHtoDAsync_v2(memory, host, 4096, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 20; i++)
        OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    return 0;
}
