/* Built with a sanitizer: memory, a second thread, a signal handler, a forked child and 8 launches, all without a
   fault; then the fault that the argument names, if any. Ends with code 7. */
#define _GNU_SOURCE
#include "driver.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static Cuda cuda;
static volatile sig_atomic_t signals;

static void count_signal(int number)
{
    (void)number;
    signals++;
}

static void *work(void *count)
{
    OK(cuCtxSetCurrent(cuda.context));
    for (int i = 0; i < *(int *)count; i++)
        launch(cuda.second, NULL);
    return malloc(16);
}

int main(int argc, char **argv)
{
    const char *fault = argc > 1 ? argv[1] : "none";
    pthread_t thread;
    void *result;
    int count = 5, status = -1;
    signal(SIGUSR1, count_signal);
    cuda = cuda_start();
    for (int i = 0; i < 3; i++)
        launch(cuda.first, NULL);
    pthread_create(&thread, NULL, work, &count);
    pthread_join(thread, &result);
    raise(SIGUSR1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    waitpid(child, &status, 0);
    OK(cuCtxSynchronize());
    printf("signals %d, child %d, result %s\n", (int)signals, WEXITSTATUS(status), result ? "there" : "none");
    fflush(stdout);
    char *volatile bytes = result;
    if (!strcmp(fault, "address")) {
        free(bytes);
        bytes[3] = 1;
        return 7;
    }
    if (!strcmp(fault, "undefined")) {
        volatile int most = 0x7fffffff;
        most = most + argc;
    }
    free(bytes);
    return 7;
}
