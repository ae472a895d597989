/* Uses a library with a CUPTI inside: `linked|before|after LIBRARY [COPY]`. The library was linked (LINKED), or is loaded
   before or after cuInit; it uses the libcupti at COPY. Without one, it is said how much of the library is in memory.
   `after LIBRARY COPY OTHER`: another library asked for the driver before, and it comes to lie in that one's place. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "driver.h"

#ifdef LINKED
void inner_cupti_begins(const char *path);
void inner_cupti_ends(void);
#else
static void (*inner_cupti_begins)(const char *path), (*inner_cupti_ends)(void);
#endif

static void load(const char *path)
{
#ifdef LINKED
    (void)path;
#else
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        puts(dlerror());
        exit(98);
    }
    inner_cupti_begins = (void (*)(const char *))dlsym(library, "inner_cupti_begins");
    inner_cupti_ends = (void (*)(void))dlsym(library, "inner_cupti_ends");
#endif
}

/* Where a library lies that was loaded and has asked for the driver; it is unloaded. */
static void *asks(const char *path)
{
    Dl_info place = {0};
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*inner_cupti_asks)(void) = library ? (int (*)(void))dlsym(library, "inner_cupti_asks") : NULL;
    if (!inner_cupti_asks || inner_cupti_asks() != 100 || !dladdr((void *)inner_cupti_asks, &place))
        exit(97);
    dlclose(library);
    return place.dli_fbase;
}

/* Another thread may map something in between. */
static void load_in_place_of(const char *path, const char *other)
{
    for (int i = 0; i < 100; i++) {
        void *place = asks(other);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        Dl_info own = {0};
        if (library && dladdr(dlsym(library, "inner_cupti_begins"), &own) && own.dli_fbase == place) {
            puts("in the same place");
            return;
        }
        dlclose(library);
    }
}

static void say_what_is_in_memory(const char *path)
{
    char line[4096];
    long kilobytes = 0, all = 0;
    int is_its = 0;
    FILE *maps = fopen("/proc/self/smaps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        if (strchr(line, '/') || strchr(line, '['))
            is_its = strstr(line, path) != NULL;
        if (is_its && sscanf(line, "Rss: %ld kB", &kilobytes) == 1)
            all += kilobytes;
    }
    printf("%ld kB\n", all);
}

int main(int count, char **arguments)
{
    if (count < 3)
        return 93;
    int is_before = strcmp(arguments[1], "after");
    if (is_before)
        load(arguments[2]);
    Cuda cuda = cuda_start();
    for (int i = 0; i < 5; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    if (count > 4)
        load_in_place_of(arguments[2], arguments[4]);
    if (!is_before)
        load(arguments[2]);
    if (count > 3)
        inner_cupti_begins(arguments[3]);
    for (int i = 0; i < 7; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    if (count > 3)
        inner_cupti_ends();
    else
        say_what_is_in_memory(arguments[2]);
    return 0;
}
