/* A child that begins CUDA inside a range that its parent pushed, and one that becomes another program. */
#include <nvtx3/nvToolsExt.h>
#include "driver.h"
#include <sys/wait.h>
#include <unistd.h>

static void work(const char *name, int count)
{
    Cuda cuda = cuda_start();
    nvtxRangePushA(name);
    for (int i = 0; i < count; i++)
        launch(cuda.first, NULL);
    nvtxRangePop();
    OK(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        work("after exec", 3);
        return 0;
    }
    nvtxRangePushA("around the fork");
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (i == 1)
                execl("/proc/self/exe", argv[0], "exec", (char *)NULL);
            work("in the child", 2);
            printf("child %d\n", nvtxRangePop());
            return 0;
        }
        int status;
        waitpid(child, &status, 0);
        printf("status %d\n", status);
        fflush(stdout);
    }
    work("in the parent", 4);
    printf("parent %d\n", nvtxRangePop());
    return 0;
}
