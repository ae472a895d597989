/* Uses CUDA and then waits for any child: there is none but its own, which ends with 9. */
#include "driver.h"
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    Cuda cuda = cuda_start();
    int status = 0;
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    if (wait(&status) != -1 || errno != ECHILD)
        return 1;
    pid_t child = fork();
    if (child == 0)
        _exit(9);
    if (wait(&status) != child || WEXITSTATUS(status) != 9)
        return 2;
    return wait(&status) == -1 && errno == ECHILD ? 0 : 3;
}
