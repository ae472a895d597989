/* A graph made before the kind for whole graphs went on ends the program at its launch, as CUPTI's does. */
#include "sim.h"

int main(void)
{
    start();
    start_client();
    CUstream stream;
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamBeginCapture_v2(stream, 0));
    OK(launch(brief, stream));
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuptiActivityEnable(GRAPH_TRACE));
    fputs("launching\n", stderr);
    cuGraphLaunch(exec, stream);
    return 0;
}
