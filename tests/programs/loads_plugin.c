/* Loads a plugin that uses CUDA, so often and in such a way: `PLUGIN TIMES local|global|deep`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc < 4)
        return 93;
    int times = atoi(argv[2]), launches = 0, stayed = 0, driver_stayed = 0;
    int flags = !strcmp(argv[3], "deep") ? RTLD_DEEPBIND : !strcmp(argv[3], "global") ? RTLD_GLOBAL : RTLD_LOCAL;
    for (int i = 0; i < times; i++) {
        void *plugin = dlopen(argv[1], RTLD_NOW | flags);
        if (!plugin) {
            puts(dlerror());
            return 1;
        }
        int (*run)(void) = (int (*)(void))dlsym(plugin, "plugin_launches");
        launches += run();
        dlclose(plugin);
        void *again = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
        stayed += again != NULL;
        if (again)
            dlclose(again);
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        driver_stayed += driver != NULL;
        if (driver)
            dlclose(driver);
    }
    printf("%d launches, the plugin stayed %d times\n", launches, stayed);
    if (getenv("SHOW_DRIVER"))
        printf("the driver stayed %d times\n", driver_stayed);
    return 5;
}
