/* Takes the environment away while the library's own thread takes some turns: reading it on another thread than the
   program's own could race with the program's setenv. Whoever reads it meanwhile dies of SIGSEGV. */
#include "driver.h"
#include <dirent.h>
#include <sys/mman.h>
#include <unistd.h>

extern char **environ;

/* How often the thread of that name gave the processor up; 0 while there is none. */
static long turns_of(const char *wanted)
{
    char path[300], line[200], name[32];
    long turns = 0;
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *thread; threads && (thread = readdir(threads));) {
        snprintf(path, sizeof path, "/proc/self/task/%s/status", thread->d_name);
        FILE *status = fopen(path, "r");
        int is_it = 0;
        while (status && fgets(line, sizeof line, status)) {
            if (sscanf(line, "Name: %31s", name) == 1)
                is_it = !strcmp(name, wanted);
            if (is_it)
                sscanf(line, "voluntary_ctxt_switches: %ld", &turns);
        }
        if (status)
            fclose(status);
    }
    if (threads)
        closedir(threads);
    return turns;
}

int main(void)
{
    Cuda cuda = cuda_start();
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    char **kept = environ;
    environ = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* The library has a thread of its own from the first context on. */
    long first = 0, now = 0;
    for (int i = 0; (!first || now < first + 4) && i < 3000; i++) {
        usleep(10000);
        now = turns_of("gputrace");
        first = first ? first : now;
    }
    environ = kept;
    fprintf(stderr, "turns %d\n", first && now >= first + 4);
    return 0;
}
