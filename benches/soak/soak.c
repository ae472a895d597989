/* An hour's load of a busy training program, as fast as the machine makes it.
 *
 *     soak LAUNCHES THREADS RATE
 *
 * The hour is 3600 rounds, each what a second of such a program does: a thread that comes and goes, a module loaded and
 * unloaded, ten streams, thirty allocations, a graph captured, instantiated, launched twenty times and destroyed, copies,
 * fills, and its share of the launches. THREADS rounds go on at a time, with at most RATE launches a second together; 0 is as
 * many as will go. Prints what was done, as the report counts it. */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "driver.h"

enum { HOUR = 3600, STREAMS = 10, ALLOCATIONS = 30, NODES = 5, GRAPH_LAUNCHES = 20, COPIES = 10, FILLS = 10 };
enum { BETWEEN_SYNCS = 1000, BETWEEN_WAITS = 64, THREADS_MAX = 64 };

static Cuda cuda;
static unsigned long launches_a_round;
/* Of one thread; 0 if it need not wait. */
static unsigned long ns_a_launch;

/* Sleeps until so many nanoseconds after a moment. */
static void wait_until(struct timespec since, unsigned long ns)
{
    since.tv_sec += (since.tv_nsec + ns) / 1000000000;
    since.tv_nsec = (since.tv_nsec + ns) % 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &since, NULL) == EINTR)
        ;
}

static void *work(void *unused)
{
    CUmodule module;
    CUfunction function;
    CUstream streams[STREAMS];
    CUdeviceptr memory[ALLOCATIONS];
    CUgraph graph;
    CUgraphExec exec;
    char host[256] = {0};

    OK(cuCtxSetCurrent(cuda.context));
    OK(cuModuleLoadData(&module, KERNELS));
    OK(cuModuleGetFunction(&function, module, "first_kernel"));
    for (int i = 0; i < STREAMS; i++)
        OK(cuStreamCreate(&streams[i], 1));
    for (int i = 0; i < ALLOCATIONS; i++)
        OK(cuMemAlloc_v2(&memory[i], 4096));

    OK(cuStreamBeginCapture_v2(streams[0], 1));
    for (int i = 0; i < NODES; i++)
        launch(function, streams[0]);
    OK(cuStreamEndCapture(streams[0], &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < GRAPH_LAUNCHES; i++)
        OK(cuGraphLaunch(exec, streams[i % STREAMS]));

    for (int i = 0; i < COPIES; i++)
        OK(cuMemcpyHtoD_v2(memory[i], host, sizeof host));
    for (int i = 0; i < FILLS; i++)
        OK(cuMemsetD8_v2(memory[i], 1, 4096));
    struct timespec since;
    clock_gettime(CLOCK_MONOTONIC, &since);
    for (unsigned long i = 0; i < launches_a_round; i++) {
        if (ns_a_launch != 0 && i % BETWEEN_WAITS == 0)
            wait_until(since, i * ns_a_launch);
        launch(function, streams[i % STREAMS]);
        if (i % BETWEEN_SYNCS == BETWEEN_SYNCS - 1)
            OK(cuStreamSynchronize(streams[i % STREAMS]));
    }
    for (int i = 0; i < STREAMS; i++)
        OK(cuStreamSynchronize(streams[i]));

    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < ALLOCATIONS; i++)
        OK(cuMemFree_v2(memory[i]));
    for (int i = 0; i < STREAMS; i++)
        OK(cuStreamDestroy_v2(streams[i]));
    OK(cuModuleUnload(module));
    return unused;
}

int main(int count, char **arguments)
{
    unsigned long launches = count > 1 ? strtoul(arguments[1], NULL, 10) : 30000000;
    int at_a_time = count > 2 ? atoi(arguments[2]) : 2;
    unsigned long rate = count > 3 ? strtoul(arguments[3], NULL, 10) : 0;
    pthread_t threads[THREADS_MAX];
    if (at_a_time < 1 || at_a_time > THREADS_MAX)
        return 2;
    /* Fewer launches are a shorter time of the same load. */
    unsigned long rounds = launches < 30000000 ? launches * HOUR / 30000000 + 1 : HOUR;
    launches_a_round = launches / rounds;
    ns_a_launch = rate == 0 ? 0 : 1000000000ul * at_a_time / rate;
    cuda = cuda_start();
    for (unsigned long round = 0; round < rounds; round++) {
        if (round >= (unsigned long)at_a_time)
            pthread_join(threads[round % at_a_time], NULL);
        if (pthread_create(&threads[round % at_a_time], NULL, work, NULL) != 0)
            return 3;
    }
    for (unsigned long i = 0; i < (unsigned long)at_a_time && i < rounds; i++)
        pthread_join(threads[i], NULL);
    OK(cuCtxSynchronize());
    printf("launches=%lu captured_launches=%lu graph_launches=%lu copies=%lu fills=%lu kernel_calls=%lu rounds=%lu\n",
           launches_a_round * rounds, NODES * rounds, GRAPH_LAUNCHES * rounds, COPIES * rounds, FILLS * rounds,
           launches_a_round * rounds + (unsigned long)NODES * GRAPH_LAUNCHES * rounds, rounds);
    return 0;
}
