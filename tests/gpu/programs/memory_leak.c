/* Leaks 2 MiB a turn at one line, 30 times in 0.3 s; 256 MiB more are held from the beginning and freed at the end. */
#include "expect.h"
#include <cuda.h>
#include <unistd.h>

__attribute__((noinline)) static void leak(void)
{
    CUdeviceptr lost;
    CHECK(cuMemAlloc_v2(&lost, 2 << 20));
}

int main(void)
{
    CUcontext context;
    CUdeviceptr held;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc_v2(&held, 256 << 20));
    for (int turn = 0; turn < 30; turn++) {
        leak();
        usleep(10000);
    }
    CHECK(cuMemFree_v2(held));
    return 0;
}
