/* Loads and unloads a module with NVTX, whose ranges stay open over that: argv[1]. */
#include "driver.h"
#include <dlfcn.h>

int main(int argc, char **argv)
{
    Cuda cuda = cuda_start();
    for (int i = 0; i < 5 && argc == 2; i++) {
        void *module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!module)
            return puts(dlerror()), 1;
        int (*enter)(const char *) = (int (*)(const char *))dlsym(module, "enter");
        int (*leave)(void) = (int (*)(void))dlsym(module, "leave");
        printf("%d ", enter("of a module"));
        dlclose(module);
        launch(cuda.first, NULL);
        module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        leave = (int (*)(void))dlsym(module, "leave");
        printf("%d\n", leave());
        dlclose(module);
    }
    OK(cuCtxSynchronize());
    return 0;
}
