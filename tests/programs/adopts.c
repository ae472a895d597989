/* Adopts orphans, as a subreaper or as process 1, and waits until it has no child left. */
#include "driver.h"
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "subreaper") == 0) {
        if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
            return 2;
    } else if (getpid() != 1) {
        return 3;
    }
    Cuda cuda = cuda_start();
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    /* A child of somebody else's would be waited for, for ever: the alarm ends that. */
    alarm(60);
    int waited = 0;
    while (wait(NULL) > 0)
        waited++;
    return waited == 1 && errno == ECHILD ? 0 : 4;
}
