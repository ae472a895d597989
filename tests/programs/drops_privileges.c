/* Becomes another user for good, as a server does that starts as root, and launches three times: in a child of fork
   that it waits for, in itself, or as the program of the further arguments. It lives for half a second at least. */
#define _GNU_SOURCE
#include "driver.h"
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#define OTHER_USER 65534

static void drop(void)
{
    if (setgroups(0, NULL) != 0 || setresgid(OTHER_USER, OTHER_USER, OTHER_USER) != 0 ||
        setresuid(OTHER_USER, OTHER_USER, OTHER_USER) != 0) {
        perror("cannot become another user");
        exit(98);
    }
}

static void work(void)
{
    drop();
    Cuda cuda = cuda_start();
    for (int i = 0; i < 3; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    usleep(500000);
    puts("done");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    if (strcmp(how, "fork") == 0) {
        pid_t child = fork();
        if (child == 0) {
            work();
            _exit(0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
    }
    if (strcmp(how, "exec") == 0 && argc > 2) {
        drop();
        execv(argv[2], argv + 2);
        perror(argv[2]);
        return 96;
    }
    work();
    return 0;
}
