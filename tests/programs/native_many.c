/* Launches from 2^17 different stacks, each once: at each of seventeen levels it calls on from one of two places. */
#include "driver.h"

static Cuda cuda;
static volatile int sink;

static __attribute__((noinline)) void from(int levels)
{
    if (!levels) {
        launch(cuda.first, NULL);
    } else {
        from(levels - 1);
        sink++;
        from(levels - 1);
    }
    sink++;
}

int main(void)
{
    cuda = cuda_start();
    from(17);
    OK(cuCtxSynchronize());
    return 0;
}
