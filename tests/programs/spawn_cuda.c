/* A CUDA program that starts another by posix_spawn and by vfork, one launch between. */
#define _GNU_SOURCE
#include "life.h"
#include <spawn.h>

int main(int argc, char **argv)
{
    Cuda cuda = cuda_start();
    pid_t child;
    launch_and_check(cuda.first, NULL);
    if (argc < 2 || posix_spawn(&child, argv[1], NULL, NULL, argv + 1, environ) != 0)
        return 1;
    show_end("spawned", child);
    launch_and_check(cuda.first, NULL);
    child = vfork();
    if (child == 0) {
        execv(argv[1], argv + 1);
        _exit(127);
    }
    show_end("vforked", child);
    launch_and_check(cuda.first, NULL);
    child = vfork();
    if (child == 0)
        _exit(3);
    show_end("vforked", child);
    launch_and_check(cuda.first, NULL);
    OK(cuCtxSynchronize());
    show_life();
    return 0;
}
