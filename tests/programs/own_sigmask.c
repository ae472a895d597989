/* A program with a pthread_sigmask of its own, which looks the C library's up at its first use. Two launches. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>
#include <signal.h>

static int calls;

__attribute__((visibility("default"))) int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    static int (*next)(int, const sigset_t *, sigset_t *);
    if (!next)
        next = (int (*)(int, const sigset_t *, sigset_t *))dlsym(RTLD_NEXT, "pthread_sigmask");
    calls++;
    return next(how, set, before);
}

int main(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    Cuda cuda = cuda_start();
    launch(cuda.first, NULL);
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    printf("blocked %d, called %s\n", sigismember(&now, SIGUSR2), calls >= 2 ? "yes" : "no");
    return 7;
}
