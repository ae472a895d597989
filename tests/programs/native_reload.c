/* Launches from each library that it is given, one after the other, each closed before the next is opened; says where each
 * was. The Nth library launches with N blocks, three times. After `past`, they are closed by the C library's own function, and the
 * last one launches for two seconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

#include "native_launch.h"

int main(int count, char **arguments)
{
    int (*close_library)(void *) = dlclose;
    int is_past = count > 1 && !strcmp(arguments[1], "past");
    if (is_past) {
        arguments++;
        count--;
        close_library = (int (*)(void *))dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "dlclose");
    }
    cuda = cuda_start();
    launch(cuda.second, NULL);
    for (int i = 1; i < count; i++) {
        void *library = dlopen(arguments[i], RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 98;
        }
        void (*work)(void (*)(int), int) = (void (*)(void (*)(int), int))dlsym(library, "work");
        printf("%p\n", (void *)work);
        for (int times = 0; times < (is_past && i == count - 1 ? 200 : 3); times++) {
            work(launch_blocks, i);
            if (is_past)
                usleep(10000);
        }
        close_library(library);
    }
    OK(cuCtxSynchronize());
    return 0;
}
