/* Starts children one after another that launch until they die at a moment drawn from a seed, and
 * prints of each: its number, how often it was about to launch, and how often it had launched.
 * Arguments: how it dies, how many, the seed. */
#define _GNU_SOURCE
#include "driver.h"
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    volatile long begun, done;
} *counts;
static const char *how;

static void die(int signal)
{
    (void)signal;
    if (!strcmp(how, "_exit"))
        _exit(5);
    if (!strcmp(how, "_Exit"))
        _Exit(5);
    if (!strcmp(how, "exit_group"))
        syscall(SYS_exit_group, 5);
    if (!strcmp(how, "quick_exit"))
        quick_exit(5);
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "segv"))
        *(volatile int *)NULL = 0;
}

static void live(long microseconds, int by_itself)
{
    struct itimerval once = {{0, 0}, {0, microseconds}};
    Cuda cuda = cuda_start();
    if (by_itself) {
        signal(SIGALRM, die);
        setitimer(ITIMER_REAL, &once, NULL);
    }
    for (;;) {
        /* Fewer than a thread's ring has room for: a collector that has to wait its turn loses none. */
        while (counts->begun >= 50000)
            pause();
        counts->begun++;
        launch(cuda.first, NULL);
        counts->done++;
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 1;
    how = argv[1];
    int signal = !strcmp(how, "SIGKILL") ? SIGKILL : !strcmp(how, "SIGTERM") ? SIGTERM : !strcmp(how, "SIGINT") ? SIGINT : 0;
    unsigned short seed[3] = {atoi(argv[3]), 1, 2};
    counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < atoi(argv[2]); i++) {
        long microseconds = 1 + nrand48(seed) % 20000;
        int status;
        counts->begun = counts->done = 0;
        pid_t child = fork();
        if (child == 0)
            live(microseconds, !signal);
        if (signal) {
            while (!counts->begun && waitpid(child, &status, WNOHANG) == 0)
                usleep(100);
            usleep(microseconds);
            kill(child, signal);
        }
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        if (WIFSIGNALED(status))
            printf("%d %ld %ld signal %d\n", child, counts->begun, counts->done, WTERMSIG(status));
        else
            printf("%d %ld %ld code %d\n", child, counts->begun, counts->done, WEXITSTATUS(status));
    }
    return 0;
}
