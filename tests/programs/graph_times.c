/* A graph of so many nodes of so many nanoseconds each, launched for so many milliseconds and at least three times, and
 * waited for each time. Prints how often it was launched. */
#include "driver.h"
#include <time.h>

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    int nodes = atoi(argv[1]), ns = atoi(argv[2]), ms = argc > 3 ? atoi(argv[3]) : 0;
    char ptx[512];
    snprintf(ptx, sizeof ptx,
             ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry node_kernel(.param .u64 unused)\n{\n"
             "// sim.duration_ns = %d\n ret;\n}\n",
             ns);
    Cuda cuda = cuda_start();
    CUmodule module;
    CUfunction kernel;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&kernel, module, "node_kernel"));
    OK(cuStreamCreate(&stream, 1));
    launch(cuda.first, stream);
    OK(cuStreamBeginCapture_v2(stream, 1));
    for (int i = 0; i < nodes; i++)
        launch(kernel, stream);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    int launches = 0;
    for (double begin = now_ms(); launches < 3 || now_ms() < begin + ms; launches++) {
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
    }
    launch(cuda.second, stream);
    OK(cuStreamSynchronize(stream));
    printf("%d\n", launches);
    return 0;
}
