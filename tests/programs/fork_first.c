/* Forks before CUDA; parent and child are CUDA programs of their own: 4 and 6 launches. */
#include "driver.h"
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    pid_t child = fork();
    Cuda cuda = cuda_start();
    for (int i = 0; i < (child ? 4 : 6); i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    if (child) {
        int status;
        if (waitpid(child, &status, 0) != child || status != 0)
            return 1;
    }
    return 0;
}
