/* Threads that initialise CUDA at the same moment, each for itself: `threads N`, `fork N` (another thread forks children
   meanwhile), `children N` (each in a child of its own, forked together), `constructor PLUGIN` (a library's constructor on a
   second thread, which holds the loader's lock). */
#include "driver.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAUNCHES 9

static pthread_barrier_t barrier;
static volatile int over;

static void initialise_and_launch(void)
{
    Cuda cuda = cuda_start();
    for (int i = 0; i < LAUNCHES; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
}

static void *begin(void *plugin)
{
    pthread_barrier_wait(&barrier);
    if (!plugin)
        initialise_and_launch();
    else if (!dlopen(plugin, RTLD_NOW))
        puts(dlerror());
    return NULL;
}

static void *fork_children(void *unused)
{
    pthread_barrier_wait(&barrier);
    while (!over) {
        pid_t child = fork();
        if (!child)
            _exit(0);
        waitpid(child, NULL, 0);
    }
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[65];
    if (argc < 3)
        return 93;
    int constructor = !strcmp(argv[1], "constructor"), forks = !strcmp(argv[1], "fork");
    int count = constructor ? 2 : atoi(argv[2]);
    if (!strcmp(argv[1], "children")) {
        for (int i = 0; i < count; i++)
            if (!fork()) {
                pthread_barrier_init(&barrier, NULL, 2);
                pthread_create(&threads[0], NULL, begin, NULL);
                begin(NULL);
                pthread_join(threads[0], NULL);
                exit(0);
            }
        while (wait(NULL) > 0)
            ;
        return 0;
    }
    pthread_barrier_init(&barrier, NULL, (unsigned)(count + forks));
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, begin, constructor && i ? argv[2] : NULL);
    if (forks)
        pthread_create(&threads[count], NULL, fork_children, NULL);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    over = 1;
    if (forks)
        pthread_join(threads[count], NULL);
    puts("done");
    return 0;
}
