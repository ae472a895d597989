/* What a program sees of its own life, printed so that a traced run and an untraced one can be compared. */
#ifndef LIFE_H
#define LIFE_H

#include "driver.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The variables that tracing may change or add; every other one is printed. */
static inline int is_tracing_s(const char *variable)
{
    static const char *const known[] = {"LD_PRELOAD=", "LD_LIBRARY_PATH=", "GPUTRACE_", "TRACEPARENT=",
                                        "NVTX_INJECTION64_PATH="};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(variable, known[i], strlen(known[i])))
            return 1;
    return 0;
}

/* Environment, descriptors, signals and children. Tracing may have two close-on-exec descriptors more. */
static inline void show_life(void)
{
    char line[256];
    int inherited = 0, private = 0;
    for (char **variable = environ; *variable; variable++)
        if (!is_tracing_s(*variable))
            printf("%s\n", *variable);
    for (int number = 0; number < 256; number++) {
        int flags = fcntl(number, F_GETFD);
        if (flags >= 0 && (flags & FD_CLOEXEC))
            private++;
        else if (flags >= 0)
            inherited++;
    }
    printf("descriptors %d\nclose-on-exec %d\n", inherited, private);
    FILE *status = fopen("/proc/self/status", "r");
    /* Signals 32 and 33 are the C library's: it sets them as it likes when a thread is made. */
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "SigIgn", 6) || !strncmp(line, "SigBlk", 6) || !strncmp(line, "ShdPnd", 6))
            printf("%.7s %llx\n", line, strtoull(line + 7, NULL, 16) & ~(3ull << 31));
    if (status)
        fclose(status);
    int child = waitpid(-1, NULL, WNOHANG);
    printf("children %s\n", child < 0 && errno == ECHILD ? "none" : "some");
    fflush(stdout);
}

/* Waits for a child and says how it ended. */
static inline void show_end(const char *what, pid_t child)
{
    int status = -1;
    const char *found = waitpid(child, &status, 0) == child ? "reaped" : "lost";
    printf("%s %s, status %d\n", what, found, status);
}

/* A launch must leave errno and dlerror as they were. */
static inline void launch_and_check(CUfunction function, CUstream stream)
{
    dlsym(RTLD_DEFAULT, "a_symbol_that_nobody_has");
    errno = 4711;
    launch(function, stream);
    const char *said = errno == 4711 ? dlerror() : "errno changed";
    if (!said || !strstr(said, "a_symbol_that_nobody_has") || errno != 4711) {
        printf("after a launch: errno %d, %s\n", errno, said ? said : "no dlerror");
        exit(98);
    }
}

#endif
