/* A CUPTI client that takes records of kernels in a window, among launches of a graph of eight. With "remade" the graph is made
 * again in the first window, and launched for half a second at the end. */
#include "cupti.h"
#include <unistd.h>

int main(int argc, char **argv)
{
    int remade = argc > 1 && !strcmp(argv[1], "remade");
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    cupti_load();
    Cuda cuda = cuda_start();
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamBeginCapture_v2(stream, 1));
    for (int i = 0; i < 8; i++)
        launch(cuda.first, stream);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int window = 0; window < 3; window++) {
        for (int i = 0; i < 5; i++)
            OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        if (window == 0)
            printf("register %d\n", cuptiActivityRegisterCallbacks(request, complete));
        printf("enable %d\n", cuptiActivityEnable(CONCURRENT_KERNEL));
        if (remade && window == 0)
            OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        for (int i = 0; i < 3; i++)
            OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        printf("disable %d\n", cuptiActivityDisable(CONCURRENT_KERNEL));
        printf("flush %d\n", cuptiActivityFlushAll(0));
        tell("records");
    }
    for (int i = 0; remade && i < 50; i++) {
        usleep(10000);
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
    }
    return 0;
}
