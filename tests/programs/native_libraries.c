/* Launches from each of so many libraries, which are called 1.so, 2.so … in a folder and all stay open. The Nth launches with N
 * blocks. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "native_launch.h"

int main(int count, char **arguments)
{
    if (count < 3)
        return 97;
    cuda = cuda_start();
    int libraries = atoi(arguments[2]);
    for (int i = 1; i <= libraries; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%d.so", arguments[1], i);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 98;
        }
        ((void (*)(void (*)(int), int))dlsym(library, "work"))(launch_blocks, i);
    }
    OK(cuCtxSynchronize());
    return 0;
}
