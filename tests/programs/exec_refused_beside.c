/* A thread launches without end while another one calls exec, in vain, and launches once after each
 * time. The argument is a folder to make a file in. */
#define _GNU_SOURCE
#include "life.h"
#include <pthread.h>
#include <time.h>

static Cuda cuda;
static volatile int over;
static volatile long launched;

static void *launches(void *unused)
{
    OK(cuCtxSetCurrent(cuda.context));
    while (!over) {
        launch(cuda.first, NULL);
        launched++;
        nanosleep(&(struct timespec){0, 200000}, NULL);
    }
    return unused;
}

int main(int argc, char **argv)
{
    char path[4096];
    pthread_t thread;
    snprintf(path, sizeof path, "%s/no-format", argc > 1 ? argv[1] : ".");
    int made = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    if (made < 0 || write(made, "\177 nothing\n", 10) != 10)
        return 1;
    close(made);
    cuda = cuda_start();
    pthread_create(&thread, NULL, launches, NULL);
    for (int i = 0; i < 5; i++) {
        nanosleep(&(struct timespec){0, 50000000}, NULL);
        int answer = execl(path, "x", NULL);
        printf("execl %d %s\n", answer, strerror(errno));
        launch(cuda.second, NULL);
    }
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    over = 1;
    pthread_join(thread, NULL);
    fprintf(stderr, "launches %ld\n", launched + 5);
    return 7;
}
