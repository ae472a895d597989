/* Blocks a signal in its only thread once CUDA is up, and waits for it: any other thread that has it open would die of it. */
#include "driver.h"
#include <signal.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
    Cuda cuda = cuda_start();
    sigset_t set;
    struct timespec most = {30, 0};
    int seen = 0;
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 100; i++) {
        kill(getpid(), SIGUSR1);
        seen += sigtimedwait(&set, NULL, &most) == SIGUSR1;
    }
    printf("signals %d\n", seen);
    return 0;
}
