/* Launches, and loads a plugin with RTLD_DEEPBIND that launches too. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>

int main(int argc, char **argv)
{
    Cuda cuda = cuda_start();
    for (int i = 0; i < 3; i++)
        launch(cuda.first, NULL);
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND) : NULL;
    int (*run)(void) = plugin ? (int (*)(void))dlsym(plugin, "plugin_launches") : NULL;
    if (!run)
        return 1;
    printf("%d launches by the plugin\n", run());
    OK(cuCtxSetCurrent(cuda.context));
    OK(cuCtxSynchronize());
    return 5;
}
