/* Eight threads start five hundred each, one launch in every one: four thousand short lives. */
#include "life.h"
#include <pthread.h>

static Cuda cuda;

static void *once(void *unused)
{
    OK(cuCtxSetCurrent(cuda.context));
    launch_and_check(cuda.first, NULL);
    return unused;
}

static void *storm(void *unused)
{
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, once, NULL) != 0 || pthread_join(thread, NULL) != 0)
            exit(1);
    }
    return unused;
}

int main(void)
{
    pthread_t threads[8];
    cuda = cuda_start();
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, storm, NULL);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    OK(cuCtxSynchronize());
    show_life();
    return 0;
}
