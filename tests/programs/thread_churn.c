/* Three hundred threads one after another, one launch each: rings must be given on. */
#include "driver.h"
#include <pthread.h>

static Cuda cuda;

static void *work(void *unused)
{
    OK(cuCtxSetCurrent(cuda.context));
    launch(cuda.first, NULL);
    return unused;
}

int main(void)
{
    cuda = cuda_start();
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, NULL);
        pthread_join(thread, NULL);
    }
    OK(cuCtxSynchronize());
    return 0;
}
