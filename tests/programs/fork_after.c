/* Forks after CUDA. The child calls nothing of CUDA and ends at once, by _exit; the parent goes on. */
#include "driver.h"
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    Cuda cuda = cuda_start();
    launch(cuda.first, NULL);
    for (int i = 0; i < 5; i++) {
        int status = 1;
        pid_t child = fork();
        if (child == 0)
            _exit(7);
        if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7)
            return 1;
        launch(cuda.first, NULL);
    }
    OK(cuCtxSynchronize());
    return 0;
}
