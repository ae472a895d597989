/* Eight threads, fifty launches each on a stream of its own. */
#include "driver.h"
#include <pthread.h>

static Cuda cuda;

static void *work(void *unused)
{
    CUstream stream;
    OK(cuCtxSetCurrent(cuda.context));
    OK(cuStreamCreate(&stream, 1));
    for (int i = 0; i < 50; i++)
        launch(cuda.first, stream);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
    return unused;
}

int main(void)
{
    pthread_t threads[8];
    cuda = cuda_start();
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
