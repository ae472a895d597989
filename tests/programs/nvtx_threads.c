/* Threads that end inside ranges, one after the other, and a range that another thread ends. */
#include <nvtx3/nvToolsExt.h>
#include "driver.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static Cuda cuda;
static nvtxRangeId_t crossing;

static void *ends_inside(void *unused)
{
    OK(cuCtxSetCurrent(cuda.context));
    nvtxRangePushA("never popped");
    nvtxRangePushA("nor this");
    launch(cuda.first, NULL);
    return unused;
}

static void *has_none(void *unused)
{
    OK(cuCtxSetCurrent(cuda.context));
    nvtxNameOsThreadA((uint32_t)syscall(SYS_gettid), "the named one");
    launch(cuda.second, NULL);
    nvtxRangeEnd(crossing);
    return unused;
}

int main(void)
{
    pthread_t thread;
    cuda = cuda_start();
    crossing = nvtxRangeStartA("crossing");
    for (int i = 0; i < 20; i++) {
        pthread_create(&thread, NULL, ends_inside, NULL);
        pthread_join(thread, NULL);
        pthread_create(&thread, NULL, has_none, NULL);
        pthread_join(thread, NULL);
    }
    OK(cuCtxSynchronize());
    return 0;
}
