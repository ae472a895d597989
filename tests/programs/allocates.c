/* Has an allocator of its own, which notes who allocates inside the driver's calls while a signal handler may come: one
 * that forks there would wait for the allocator's lock for ever. The driver beneath does not allocate. */
#define _GNU_SOURCE
#include "life.h"
#include <pthread.h>
#include <signal.h>

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void __libc_free(void *);

static __thread int is_inside __attribute__((tls_model("initial-exec")));
static __thread const char *call __attribute__((tls_model("initial-exec")));
static volatile int allocations, held_back;

static void note(void)
{
    if (!is_inside)
        return;
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    if (sigismember(&now, SIGALRM)) {
        held_back++;
    } else {
        allocations++;
        write(2, call, strlen(call)), write(2, " allocates\n", 11);
    }
}

void *malloc(size_t bytes) { return note(), __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { return note(), __libc_calloc(count, bytes); }
void *realloc(void *old, size_t bytes) { return note(), __libc_realloc(old, bytes); }
void free(void *old) { note(), __libc_free(old); }

#define INSIDE(what)                                                                                                  \
    do {                                                                                                              \
        call = #what, is_inside = 1;                                                                                  \
        CUresult ended = what;                                                                                        \
        is_inside = 0;                                                                                                \
        OK(ended);                                                                                                    \
    } while (0)

static Cuda cuda;

static void *all_calls(void *unused)
{
    CUdeviceptr memory;
    void *pinned;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    char bytes[64] = {0};
    INSIDE(cuCtxSetCurrent(cuda.context));
    INSIDE(cuModuleLoadData(&cuda.module, KERNELS));
    INSIDE(cuModuleGetFunction(&cuda.first, cuda.module, "first_kernel"));
    INSIDE(cuModuleGetFunction(&cuda.second, cuda.module, "second_kernel"));
    INSIDE(cuMemAlloc_v2(&memory, 64));
    INSIDE(cuMemAllocHost_v2(&pinned, 64));
    INSIDE(cuStreamCreate(&stream, 0));
    for (int i = 0; i < 3; i++) {
        CUstream on[] = {NULL, stream};
        for (int j = 0; j < 2; j++) {
            void *parameters[] = {&unused};
            INSIDE(cuLaunchKernel(cuda.first, 1, 1, 1, 32, 1, 1, 0, on[j], parameters, NULL));
            INSIDE(cuLaunchKernel(cuda.second, 1, 1, 1, 32, 1, 1, 0, on[j], parameters, NULL));
            INSIDE(cuMemcpyHtoDAsync_v2(memory, bytes, 64, on[j]));
            INSIDE(cuStreamSynchronize(on[j]));
        }
        INSIDE(cuMemcpyHtoD_v2(memory, bytes, 64));
        INSIDE(cuMemcpyDtoH_v2(bytes, memory, 64));
        INSIDE(cuMemsetD8_v2(memory, 1, 64));
        INSIDE(cuStreamBeginCapture_v2(stream, 0));
        INSIDE(cuStreamEndCapture(stream, &graph));
        INSIDE(cuGraphInstantiateWithFlags(&exec, graph, 0));
        INSIDE(cuGraphLaunch(exec, stream));
        INSIDE(cuGraphExecDestroy(exec));
        INSIDE(cuGraphDestroy(graph));
        INSIDE(cuCtxSynchronize());
    }
    INSIDE(cuStreamDestroy_v2(stream));
    INSIDE(cuMemFreeHost(pinned));
    INSIDE(cuMemFree_v2(memory));
    INSIDE(cuModuleUnload(cuda.module));
    return NULL;
}

int main(void)
{
    pthread_t thread;
    /* The session starts in it, and libcupti is loaded, which is the driver's own way to begin. */
    OK(cuInit(0));
    INSIDE(cuDeviceGet(&cuda.device, 0));
    INSIDE(cuDevicePrimaryCtxRetain(&cuda.context, cuda.device));
    all_calls(NULL);
    pthread_create(&thread, NULL, all_calls, NULL);
    pthread_join(thread, NULL);
    printf("allocations %d, held back %d\n", allocations, held_back);
    return 0;
}
