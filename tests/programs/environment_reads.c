/* Counts who reads our variables after the start, on another thread than the program's own: there
   a getenv could race with the program's setenv. A poll of such a thread is a turn of it. */
#include "driver.h"
#include <poll.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;
static _Thread_local int is_ours;
static atomic_int reads, turns;

char *getenv(const char *name)
{
    size_t length = strlen(name);
    if (!is_ours && strncmp(name, "GPUTRACE", 8) == 0)
        reads++;
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

int poll(struct pollfd *files, nfds_t count, int timeout_ms)
{
    if (!is_ours)
        turns++;
    return (int)syscall(SYS_poll, files, count, timeout_ms);
}

int main(void)
{
    is_ours = 1;
    Cuda cuda = cuda_start();
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    reads = turns = 0;
    /* The library has a thread of its own from the first context on. */
    for (int i = 0; turns < 4 && i < 6000; i++)
        usleep(10000);
    fprintf(stderr, "turns %d\n", turns >= 4);
    return reads;
}
