/* Every exec here fails; the program goes on, one launch before each and three after. */
#define _GNU_SOURCE
#include "life.h"

int main(void)
{
    Cuda cuda = cuda_start();
    char *const arguments[] = {"x", NULL};
    launch_and_check(cuda.first, NULL);
    printf("execvp %d", execvp("no-such-program-anywhere", arguments));
    printf(" %s\n", strerror(errno));
    launch_and_check(cuda.first, NULL);
    printf("execlp %d", execlp("no-such-program-anywhere", "x", "y", NULL));
    printf(" %s\n", strerror(errno));
    launch_and_check(cuda.first, NULL);
    printf("execv %d", execv("/etc/passwd", arguments));
    printf(" %s\n", strerror(errno));
    launch_and_check(cuda.first, NULL);
    printf("execve %d", execve("/tmp", arguments, environ));
    printf(" %s\n", strerror(errno));
    for (int i = 0; i < 3; i++)
        launch_and_check(cuda.first, NULL);
    OK(cuCtxSynchronize());
    show_life();
    return 0;
}
