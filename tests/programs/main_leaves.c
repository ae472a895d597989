/* The main thread leaves while four others launch; the last of them ends the program. */
#include "life.h"
#include <pthread.h>
#include <stdatomic.h>

static Cuda cuda;
static atomic_int left = 4;

static void *work(void *unused)
{
    OK(cuCtxSetCurrent(cuda.context));
    for (int i = 0; i < 500; i++)
        launch_and_check(cuda.first, NULL);
    if (atomic_fetch_sub(&left, 1) == 1) {
        puts("the last thread ends the program");
        exit(8);
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    cuda = cuda_start();
    for (int i = 0; i < 4; i++)
        pthread_create(&thread, NULL, work, NULL);
    pthread_exit(NULL);
}
