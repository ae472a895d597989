/* Counts who reads the environment after the start, on another thread than the program's own: there a read could race
   with the program's setenv. The array of variables lies in memory that faults when it is read. The tracer's thread
   has a turn whenever it waits. */
#define _GNU_SOURCE
#include "driver.h"
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES (64 * 1024)

static char **variables;
static volatile sig_atomic_t reads;

static void count_read(int number, siginfo_t *about, void *unused)
{
    (void)number, (void)unused;
    if ((uintptr_t)about->si_addr - (uintptr_t)variables >= BYTES)
        _exit(97);
    reads++;
    mprotect(variables, BYTES, PROT_READ);
}

/* How often the tracer's thread has waited; -1 where there is no such thread. */
static long waits(void)
{
    DIR *tasks = opendir("/proc/self/task");
    long found = -1;
    for (struct dirent *task = readdir(tasks); task; task = readdir(tasks)) {
        char path[300], line[200];
        int is_tracer_s = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        while (status && fgets(line, sizeof line, status)) {
            if (!strncmp(line, "Name:\tgputrace", 14))
                is_tracer_s = 1;
            if (is_tracer_s)
                sscanf(line, "voluntary_ctxt_switches: %ld", &found);
        }
        if (status)
            fclose(status);
    }
    closedir(tasks);
    return found;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = count_read, .sa_flags = SA_SIGINFO};
    Cuda cuda = cuda_start();
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    variables = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; environ[i] && (i + 1) * sizeof *environ < BYTES; i++)
        variables[i] = environ[i];
    sigaction(SIGSEGV, &action, NULL);
    environ = variables;
    /* The library has a thread of its own from the first context on. */
    long before = waits();
    for (int i = 0; before < 0 && i < 6000; i++) {
        usleep(10000);
        before = waits();
    }
    long now = before;
    mprotect(variables, BYTES, PROT_NONE);
    for (int i = 0; now < before + 4 && i < 6000; i++) {
        usleep(10000);
        now = waits();
    }
    mprotect(variables, BYTES, PROT_READ);
    fprintf(stderr, "turns %d\n", before >= 0 && now >= before + 4);
    return reads;
}
