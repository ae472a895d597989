/* Four threads make a graph each, and then launch, copy, fill, replay it and wait until stdin is closed; then
   it says how many of each there were. */
#include "driver.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static Cuda cuda;
static atomic_int is_over;
static pthread_barrier_t graphs_made;
static atomic_long launches, graphs, copies, fills, waits;

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
    for (int i = 0; i < 3; i++)
        launch(cuda.first, stream);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    pthread_barrier_wait(&graphs_made);
    while (!is_over) {
        for (int i = 0; i < 5; i++)
            launch(cuda.first, stream);
        OK(cuMemcpyHtoDAsync_v2(memory, host, 4096, stream));
        OK(cuMemsetD8_v2(memory, 1, 4096));
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        launches += 5;
        copies += 1;
        fills += 1;
        graphs += 1;
        waits += 1;
        usleep(300);
    }
    return unused;
}

int main(void)
{
    pthread_t threads[4];
    cuda = cuda_start();
    pthread_barrier_init(&graphs_made, NULL, 4);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    puts("ready");
    fflush(stdout);
    getchar();
    is_over = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("%ld %ld %ld %ld %ld\n", launches, graphs, copies, fills, waits);
    fflush(stdout);
    return 0;
}
