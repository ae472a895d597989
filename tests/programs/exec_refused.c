/* Every exec here finds its file and fails all the same; launches before, between and after. The
 * argument is a folder to make the files in. */
#define _GNU_SOURCE
#include "life.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

static Cuda cuda;

static const char *file(const char *folder, const char *name, const char *text)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int made = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    if (made < 0 || write(made, text, strlen(text)) != (ssize_t)strlen(text))
        exit(97);
    close(made);
    return path;
}

static void failed(const char *how, int answer)
{
    printf("%s %d %s\n", how, answer, strerror(errno));
    launch_and_check(cuda.first, NULL);
    launch_and_check(cuda.second, NULL);
}

static void *launches(void *unused)
{
    OK(cuCtxSetCurrent(cuda.context));
    for (int i = 0; i < 10; i++)
        launch_and_check(cuda.first, NULL);
    return unused;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    char *const arguments[] = {"x", NULL};
    cuda = cuda_start();
    launch_and_check(cuda.first, NULL);

    const char *path = file(folder, "no-format", "\177no format that anybody knows\n");
    failed("execv", execv(path, arguments));
    failed("execl", execl(path, "a", "b", NULL));

    path = file(folder, "no-interpreter", "#!/nonexistent/interpreter\n");
    failed("execve", execve(path, arguments, environ));

    int writer = open(path = file(folder, "busy", "#!/bin/sh\n"), O_WRONLY | O_CLOEXEC);
    int descriptor = open(path, O_PATH | O_CLOEXEC);
    failed("execv while it is written", execv(path, arguments));
    failed("fexecve while it is written", fexecve(descriptor, arguments, environ));
    close(writer);
    close(descriptor);

    char *huge = malloc(4 << 20);
    memset(huge, 'x', (4 << 20) - 1);
    huge[(4 << 20) - 1] = 0;
    failed("execl with too much", execl("/bin/true", "true", huge, NULL));

    /* A thread that made none of them is recorded, too, and a child that calls nothing changes nothing. */
    pthread_t thread;
    pthread_create(&thread, NULL, launches, NULL);
    pthread_join(thread, NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    show_end("child", child);
    OK(cuCtxSynchronize());
    show_life();
    return 7;
}
