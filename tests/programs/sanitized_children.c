/* A program with a sanitizer that launches once and starts a shell and Python, each of which prints its LD_PRELOAD
   and ends with a code of its own. */
#define _GNU_SOURCE
#include "driver.h"
#include <sys/wait.h>

static void run(const char *command)
{
    fflush(stdout);
    int status = system(command);
    printf("code %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

int main(void)
{
    Cuda cuda = cuda_start();
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    const char *preload = getenv("LD_PRELOAD");
    printf("own %s\n", preload ? preload : "none");
    run("echo sh ${LD_PRELOAD-none}; exit 4");
    run("exec python3 -c 'import os, sys; print(\"python\", os.environ.get(\"LD_PRELOAD\", \"none\")); sys.exit(6)'");
    return 7;
}
