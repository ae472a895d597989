/* A thread whose call of the driver never returns, since it ends inside; the program goes on. With an argument the call
   is a launch, with a second one the thread launches again as it ends, and with a third one it has made such a launch
   before. */
#include "driver.h"
#include <pthread.h>

CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **);

static Cuda cuda;
static int cleaned_up, is_launch, launches_again, is_later;

static void clean_up(void *unused)
{
    (void)unused;
    cleaned_up = 1;
    if (launches_again)
        launch(cuda.first, NULL);
}

static void *thread(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(cuda.context));
    launch(cuda.first, NULL);
    if (is_later)
        cuLaunchCooperativeKernel(cuda.first, 2, 1, 1, 1, 1, 1, 0, NULL, NULL);
    pthread_cleanup_push(clean_up, NULL);
    if (is_launch)
        cuLaunchCooperativeKernel(cuda.first, 1, 1, 1, 1, 1, 1, 0, NULL, NULL);
    else
        cuStreamSynchronize(NULL);
    puts("it returned");
    pthread_cleanup_pop(0);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t one;
    void *result = &one;
    (void)argv;
    is_launch = argc > 1;
    launches_again = argc > 2;
    is_later = argc > 3;
    cuda = cuda_start();
    pthread_create(&one, NULL, thread, NULL);
    pthread_join(one, &result);
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    printf("the thread's result: %s, cleaned up: %d\n", result ? "something" : "null", cleaned_up);
    return 0;
}
