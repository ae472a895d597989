/* A thread whose call of the driver never returns, since it ends inside; the program goes on. */
#include "driver.h"
#include <pthread.h>

static Cuda cuda;
static int cleaned_up;

static void clean_up(void *unused)
{
    (void)unused;
    cleaned_up = 1;
}

static void *thread(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(cuda.context));
    launch(cuda.first, NULL);
    pthread_cleanup_push(clean_up, NULL);
    cuStreamSynchronize(NULL);
    puts("it returned");
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void)
{
    pthread_t one;
    void *result = &one;
    cuda = cuda_start();
    pthread_create(&one, NULL, thread, NULL);
    pthread_join(one, &result);
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    printf("the thread's result: %s, cleaned up: %d\n", result ? "something" : "null", cleaned_up);
    return 0;
}
