/* Launches without a pause while a timer's handler, thousands of times a second, does what the
 * first argument names: launches too, or forks a child that goes on from where it was interrupted.
 * The second is how often. */
#define _GNU_SOURCE
#include "life.h"
#include <signal.h>
#include <sys/time.h>

static Cuda cuda;
static int forks;
static volatile long in_handler, failed;
static volatile int is_child;

/* Once more, after a while that is never the same: the program goes on in between. */
static void again(void)
{
    long while_us = 20 + in_handler * 7919 % 211;
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, while_us}}, NULL);
}

static void handler(int signal)
{
    int kept = errno, status = -1;
    (void)signal;
    in_handler++;
    if (!forks) {
        launch(cuda.second, NULL);
    } else {
        pid_t child = fork();
        if (child == 0)
            is_child = 1;
        else if (waitpid(child, &status, 0) != child || status != 0)
            failed++;
    }
    if (!is_child)
        again();
    errno = kept;
}

int main(int argc, char **argv)
{
    long wanted = argc > 2 ? atol(argv[2]) : 1000, in_main = 0;
    forks = argc > 1 && !strcmp(argv[1], "forks");
    cuda = cuda_start();
    signal(SIGALRM, handler);
    again();
    while (!is_child && in_handler < wanted) {
        launch(cuda.first, NULL);
        in_main++;
    }
    if (is_child) {
        launch(cuda.first, NULL);
        _exit(0);
    }
    signal(SIGALRM, SIG_IGN);
    if (is_child)
        _exit(0);
    fprintf(stderr, "launches %ld %ld\n", in_main, (long)in_handler);
    printf("failed %ld\n", (long)failed);
    show_life();
    return 0;
}
