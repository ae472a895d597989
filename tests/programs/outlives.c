/* The parent ends while its child launches on, for longer than a session waits for what is left. */
#include "life.h"
#include <time.h>

int main(void)
{
    int ends[2];
    char begun = 0;
    if (pipe(ends) != 0)
        return 1;
    if (fork() != 0) {
        if (read(ends[0], &begun, 1) != 1)
            return 2;
        puts("the parent ends");
        return 7;
    }
    Cuda cuda = cuda_start();
    for (int i = 0; i < 3; i++)
        launch_and_check(cuda.first, NULL);
    OK(cuCtxSynchronize());
    if (write(ends[1], "x", 1) != 1)
        return 3;
    for (int i = 0; i < 2000; i++) {
        launch_and_check(cuda.first, NULL);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    OK(cuCtxSynchronize());
    show_life();
    puts("the child ends after 2003 launches");
    return 0;
}
