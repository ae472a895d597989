/* Launches twice, forks a child that becomes the program of the first argument, and launches twice more. */
#define _GNU_SOURCE
#include "life.h"

int main(int argc, char **argv)
{
    Cuda cuda = cuda_start();
    launch_and_check(cuda.first, NULL);
    launch_and_check(cuda.first, NULL);
    pid_t child = argc > 1 ? fork() : -1;
    if (child == 0) {
        execv(argv[1], argv + 1);
        _exit(127);
    }
    show_end("child", child);
    launch_and_check(cuda.first, NULL);
    launch_and_check(cuda.first, NULL);
    OK(cuCtxSynchronize());
    show_life();
    return 0;
}
