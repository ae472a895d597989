/* A worker that is renamed by another thread after its launches, a title that is set late, as setproctitle
 * does, and a rename of the main thread by prctl. Threads stay until the end. */
#define _GNU_SOURCE
#include "driver.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static Cuda cuda;
static pthread_barrier_t launched;

static void *work(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(cuda.context));
    launch(cuda.second, 0);
    OK(cuCtxSynchronize());
    pthread_barrier_wait(&launched);
    for (;;)
        pause();
    return NULL;
}

int main(int argc, char **argv)
{
    const char *title = "trainer: rank 2 --password hunter2 /secret/model";
    size_t room = argv[argc - 1] + strlen(argv[argc - 1]) - argv[0];
    pthread_t threads[3];
    pthread_barrier_init(&launched, NULL, 4);
    cuda = cuda_start();
    for (int i = 0; i < 3; i++)
        OK(pthread_create(&threads[i], NULL, work, NULL));
    pthread_barrier_wait(&launched);
    launch(cuda.first, 0);
    OK(cuCtxSynchronize());
    OK(pthread_setname_np(threads[0], "loader"));
    OK(pthread_setname_np(threads[1], "to be changed"));
    OK(pthread_setname_np(threads[1], "reducer; 1"));
    OK(prctl(PR_SET_NAME, "main thread"));
    if (room < strlen(title))
        return 9;
    memset(argv[0], 0, room);
    strcpy(argv[0], title);
    return 0;
}
