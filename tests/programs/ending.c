/* Three launches, then the end that the argument names. */
#include "driver.h"
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *leave(void *unused)
{
    exit(5);
    return unused;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "return";
    Cuda cuda = cuda_start();
    for (int i = 0; i < 3; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    if (!strcmp(how, "exit"))
        exit(5);
    if (!strcmp(how, "_exit"))
        _exit(5);
    if (!strcmp(how, "quick_exit"))
        quick_exit(5);
    if (!strcmp(how, "go")) {
        /* As programs in Go end: no handler, no function of libc. */
        for (int i = 0; i < 17; i++)
            launch(cuda.first, NULL);
        OK(cuCtxSynchronize());
        syscall(SYS_exit_group, 5);
    }
    if (!strcmp(how, "syscall"))
        syscall(SYS_exit_group, 5);
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(how, "segv"))
        raise(SIGSEGV);
    if (!strcmp(how, "thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, leave, NULL);
        pthread_join(thread, NULL);
    }
    if (!strcmp(how, "main_thread_leaves")) {
        pthread_t thread;
        pthread_create(&thread, NULL, leave, NULL);
        pthread_exit(NULL);
    }
    if (!strcmp(how, "wait_for_signal"))
        for (;;) {
            puts("waiting");
            fflush(stdout);
            pause();
        }
    return 5;
}
