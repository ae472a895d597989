/* Two threads end the program at once, one by exit and one by _exit, after 1000 launches each. */
#include "life.h"
#include <pthread.h>

static Cuda cuda;
static pthread_barrier_t together;

static void launch_many(void)
{
    OK(cuCtxSetCurrent(cuda.context));
    for (int i = 0; i < 1000; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    pthread_barrier_wait(&together);
}

static void *leave(void *unused)
{
    launch_many();
    _exit(9);
    return unused;
}

int main(void)
{
    pthread_t thread;
    pthread_barrier_init(&together, NULL, 2);
    cuda = cuda_start();
    pthread_create(&thread, NULL, leave, NULL);
    launch_many();
    exit(9);
}
