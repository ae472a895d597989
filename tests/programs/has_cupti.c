/* A program with something of a static libcupti in it: the name of its kernel, and what it needs of the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

#include "driver.h"

const char of_cupti[] = ".entry __CuptiCnpEntryExitHeplerKernel{exit;}";
void *(*needs_dlsym)(void *, const char *) = dlsym;
int (*needs_rwlock)(pthread_rwlock_t *, const struct timespec *) = pthread_rwlock_timedwrlock;

int main(int count, char **arguments)
{
    (void)arguments;
    Cuda cuda = cuda_start();
    for (int i = 0; i < 5; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    puts(of_cupti + count - 1);
    return 0;
}
