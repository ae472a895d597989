/* A graph of so many nodes of so many nanoseconds each, launched for so many milliseconds and at least three times, and
 * waited for each time. Prints how often it was launched. Three numbers more: another graph after it, of kernels of
 * another name, which it prints as well. */
#include "driver.h"
#include <time.h>

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static int launches_of(CUstream stream, const char *name, int nodes, int ns, int ms)
{
    char ptx[512];
    snprintf(ptx, sizeof ptx,
             ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry %s(.param .u64 unused)\n{\n"
             "// sim.duration_ns = %d\n ret;\n}\n",
             name, ns);
    CUmodule module;
    CUfunction kernel;
    CUgraph graph;
    CUgraphExec exec;
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&kernel, module, name));
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
    return launches;
}

int main(int argc, char **argv)
{
    int numbers[6] = {0};
    for (int i = 1; i < argc && i <= 6; i++)
        numbers[i - 1] = atoi(argv[i]);
    Cuda cuda = cuda_start();
    CUstream stream;
    OK(cuStreamCreate(&stream, 1));
    launch(cuda.first, stream);
    int first = launches_of(stream, "node_kernel", numbers[0], numbers[1], numbers[2]);
    int later = argc > 4 ? launches_of(stream, "later_kernel", numbers[3], numbers[4], numbers[5]) : 0;
    launch(cuda.second, stream);
    OK(cuStreamSynchronize(stream));
    printf("%d\n", first);
    if (later)
        printf("%d\n", later);
    return 0;
}
