/* Everything on the smallest stacks there are: cuInit and five launches on a thread of
 * PTHREAD_STACK_MIN, two more in a handler on an alternate stack of SIGSTKSZ, and the end that the
 * argument names: by that thread, by a handler on the alternate stack, or by main. */
#define _GNU_SOURCE
#include "life.h"
#include <limits.h>
#include <pthread.h>
#include <signal.h>

static Cuda cuda;
static const char *how;

static void handler(int signal)
{
    OK(cuCtxSetCurrent(cuda.context));
    launch(cuda.second, NULL);
    launch(cuda.second, NULL);
    if (signal == SIGUSR2)
        _exit(5);
}

static void *work(void *unused)
{
    cuda = cuda_start();
    for (int i = 0; i < 5; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    if (!strcmp(how, "thread"))
        exit(5);
    if (!strcmp(how, "thread_at_once"))
        _exit(5);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    pthread_attr_t small;
    how = argc > 1 ? argv[1] : "return";
    pthread_attr_init(&small);
    if (pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN) != 0 || pthread_create(&thread, &small, work, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    stack_t stack = {.ss_sp = malloc(SIGSTKSZ), .ss_size = SIGSTKSZ};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&stack, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0 || sigaction(SIGUSR2, &action, NULL) != 0)
        return 2;
    raise(!strcmp(how, "handler") ? SIGUSR2 : SIGUSR1);
    OK(cuCtxSynchronize());
    show_life();
    return 5;
}
