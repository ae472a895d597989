/* A CUDA program that starts others, by system, popen, posix_spawn and vfork, between launches. */
#define _GNU_SOURCE
#include "driver.h"
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(void)
{
    Cuda cuda = cuda_start();
    char *const command[] = {"true", NULL};
    char line[8] = "";
    int status = 1;
    pid_t child;
    launch(cuda.first, NULL);
    if (system("exit 3") != 3 << 8)
        return 1;
    launch(cuda.first, NULL);
    FILE *pipe = popen("echo piped", "r");
    if (!pipe || !fgets(line, sizeof line, pipe) || pclose(pipe) != 0)
        return 2;
    launch(cuda.first, NULL);
    if (posix_spawnp(&child, "true", NULL, NULL, command, environ) || waitpid(child, &status, 0) != child || status)
        return 3;
    launch(cuda.first, NULL);
    child = vfork();
    if (child == 0) {
        execvp("true", command);
        _exit(127);
    }
    if (waitpid(child, &status, 0) != child || status)
        return 4;
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    return 0;
}
