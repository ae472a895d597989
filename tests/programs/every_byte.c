/* Threads whose names together have every byte. The test gives the program's own file such a name. */
#define _GNU_SOURCE
#include "driver.h"
#include <pthread.h>

static Cuda cuda;

static void *work(void *name)
{
    OK(pthread_setname_np(pthread_self(), name));
    OK(cuCtxSetCurrent(cuda.context));
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    return NULL;
}

int main(void)
{
    cuda = cuda_start();
    for (int first = 1; first < 256; first += 15) {
        char name[16] = {0};
        for (int i = 0; i < 15 && first + i < 256; i++)
            name[i] = (char)(first + i);
        pthread_t thread;
        OK(pthread_create(&thread, NULL, work, name));
        OK(pthread_join(thread, NULL));
    }
    return 0;
}
