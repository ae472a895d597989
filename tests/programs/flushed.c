/* Eight threads launch, copy, fill and replay a graph over and over for 1.5 s. Prints how many of each there were. */
#include "driver.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static Cuda cuda;
static atomic_int is_over;
static atomic_long launches, others;

static void *work(void *unused)
{
    CUstream stream;
    CUdeviceptr memory;
    CUgraph graph;
    CUgraphExec exec;
    void *host;
    OK(cuCtxSetCurrent(cuda.context));
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&memory, 4096));
    OK(cuMemAllocHost_v2(&host, 4096));
    OK(cuStreamBeginCapture_v2(stream, 1));
    launch(cuda.first, stream);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    while (!is_over) {
        for (int i = 0; i < 5; i++)
            launch(cuda.first, stream);
        OK(cuMemcpyHtoDAsync_v2(memory, host, 4096, stream));
        OK(cuMemsetD8_v2(memory, 1, 4096));
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        launches += 5;
        others += 1;
        usleep(500);
    }
    return unused;
}

int main(void)
{
    pthread_t threads[8];
    cuda = cuda_start();
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    usleep(1500000);
    is_over = 1;
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    printf("%ld %ld\n", launches, others);
    return 0;
}
