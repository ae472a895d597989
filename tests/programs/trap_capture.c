/* Captures kernels, copies and fills between two events, and says how many nodes the graph has and whether it runs. */
#include "driver.h"

CUresult cuGraphGetNodes(CUgraph graph, void **nodes, size_t *count);
CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream);
CUresult cuStreamIsCapturing(CUstream stream, int *status);

int main(void)
{
    Cuda cuda = cuda_start();
    CUstream stream, other;
    CUevent forked, joined;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr memory;
    size_t count = 0;
    int capturing = -1;
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamCreate(&other, 1));
    OK(cuEventCreate(&forked, 2));
    OK(cuEventCreate(&joined, 2));
    OK(cuMemAlloc_v2(&memory, 4096));
    /* Mode 0 is global: a call that is unsafe during a capture would spoil it. */
    OK(cuStreamBeginCapture_v2(stream, 0));
    for (int i = 0; i < 3; i++)
        launch(cuda.first, stream);
    OK(cuEventRecord(forked, stream));
    OK(cuStreamWaitEvent(other, forked, 0));
    launch(cuda.second, other);
    OK(cuEventRecord(joined, other));
    OK(cuMemsetD8Async(memory, 1, 4096, stream));
    OK(cuStreamWaitEvent(stream, joined, 0));
    launch(cuda.first, stream);
    OK(cuStreamIsCapturing(stream, &capturing));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &count));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 10; i++)
        OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    printf("capturing %d nodes %zu\n", capturing, count);
    return 0;
}
