/* So many executable graphs of one kernel, each launched so many times; and more memory is asked for than there is. */
#include "driver.h"

int main(int argc, char **argv)
{
    int graphs = atoi(argv[1]), launches = argc > 2 ? atoi(argv[2]) : 1;
    Cuda cuda = cuda_start();
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr memory;
    if (!cuMemAlloc_v2(&memory, (size_t)1 << 50))
        return 95;
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamBeginCapture_v2(stream, 1));
    launch(cuda.first, stream);
    OK(cuStreamEndCapture(stream, &graph));
    for (int i = 0; i < graphs; i++) {
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        for (int j = 0; j < launches; j++)
            OK(cuGraphLaunch(exec, stream));
    }
    OK(cuStreamSynchronize(stream));
    return 0;
}
