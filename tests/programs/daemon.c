/* Becomes a daemon before CUDA, by daemon(3) or by forking twice; five launches there. The first
 * process waits until the daemon has ended, which it sees by a pipe. */
#define _DEFAULT_SOURCE
#include "life.h"

static void work(int pipe_end)
{
    Cuda cuda = cuda_start();
    for (int i = 0; i < 5; i++)
        launch_and_check(cuda.first, NULL);
    OK(cuCtxSynchronize());
    show_life();
    dprintf(pipe_end, "daemon of %s", getppid() == getpgrp() ? "its group" : "nobody");
    exit(0);
}

int main(int argc, char **argv)
{
    int ends[2], status = -1;
    char said[64] = "";
    if (argc < 2 || pipe(ends) != 0)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        if (!strcmp(argv[1], "daemon") && daemon(1, 1) != 0)
            _exit(2);
        if (!strcmp(argv[1], "double_fork")) {
            setsid();
            if (fork() != 0)
                _exit(0);
        }
        work(ends[1]);
    }
    close(ends[1]);
    waitpid(child, &status, 0);
    ssize_t length = 0, got;
    while ((got = read(ends[0], said + length, sizeof said - 1 - length)) > 0)
        length += got;
    printf("status %d, %s\n", status, said);
    return 6;
}
