/* windows THREADS MILLISECONDS [long|rough|slow|fork|exit]: each thread launches two kernels in turn, a copy and
   a captured graph of three kernels, with a stream of its own. long: now and then a kernel that takes longer than
   any window. rough: launches that are refused, and on streams of a short life. slow: longer pauses between a
   thread's rounds, so that a debug build's collector keeps up with eight of them on two processors. Prints how
   many launches and graph launches there were and, if rough, how many were refused. */
#include "driver.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const LONG_KERNEL = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                       ".visible .entry long_kernel(.param .u64 unused)\n{\n"
                                       "// sim.duration_ns = 300000000\n ret;\n}\n";

static Cuda cuda;
static CUfunction longer;
static atomic_long launches, graphs, refused;
static int is_rough;
static long until_ms;
static long pause_us = 200;

static long now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void *work(void *unused)
{
    CUstream stream, other;
    CUdeviceptr memory;
    CUgraph graph;
    CUgraphExec exec;
    void *host;
    OK(cuCtxSetCurrent(cuda.context));
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamCreate(&other, 1));
    OK(cuMemAlloc_v2(&memory, 4096));
    OK(cuMemAllocHost_v2(&host, 4096));
    OK(cuStreamBeginCapture_v2(stream, 1));
    for (int i = 0; i < 3; i++)
        launch(cuda.first, stream);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int turn = 0; now_ms() < until_ms; turn++) {
        for (int i = 0; i < 4; i++) {
            launch(cuda.first, stream);
            launch(cuda.second, stream);
        }
        launches += 8;
        OK(cuMemcpyHtoDAsync_v2(memory, host, 4096, stream));
        OK(cuGraphLaunch(exec, stream));
        graphs += 1;
        if (longer && turn % 40 == 0) {
            launch(longer, other);
            launches += 1;
        }
        if (is_rough && turn % 16 == 0) {
            CUstream brief;
            OK(cuStreamCreate(&brief, 1));
            launch(cuda.first, brief);
            launch(cuda.second, brief);
            launches += 2;
            OK(cuStreamDestroy_v2(brief));
            /* A block has no 4096 × 4096 threads. */
            refused += cuLaunchKernel(cuda.first, 1, 1, 1, 4096, 4096, 1, 0, stream, NULL, NULL) != 0;
        }
        OK(cuStreamSynchronize(stream));
        usleep(pause_us);
    }
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t threads[64];
    int some = atoi(arguments[1]);
    int forks = count > 3 && !strcmp(arguments[3], "fork");
    int exits = count > 3 && !strcmp(arguments[3], "exit");
    if (count > 3 && !strcmp(arguments[3], "slow"))
        pause_us = 1600;
    is_rough = count > 3 && !strcmp(arguments[3], "rough");
    cuda = cuda_start();
    if (count > 3 && !strcmp(arguments[3], "long")) {
        CUmodule module;
        OK(cuModuleLoadData(&module, LONG_KERNEL));
        OK(cuModuleGetFunction(&longer, module, "long_kernel"));
    }
    until_ms = now_ms() + atoi(arguments[2]);
    for (int i = 0; i < some; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    if (forks)
        for (int i = 0; i < 20; i++) {
            usleep(20000);
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            waitpid(child, NULL, 0);
        }
    if (exits) {
        usleep(300000);
        exit(0);
    }
    for (int i = 0; i < some; i++)
        pthread_join(threads[i], NULL);
    printf("%ld %ld", launches, graphs);
    if (is_rough)
        printf(" %ld", refused);
    puts("");
    return 0;
}
