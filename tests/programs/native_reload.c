/* Launches from each library that it is given, one after the other, each closed before the next is opened; says where each
 * was. The Nth library launches with N blocks, three times. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "driver.h"

static Cuda cuda;
static volatile int sink;

static void launch_blocks(int blocks)
{
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    OK(cuLaunchKernel(cuda.first, blocks, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
    sink++;
}

int main(int count, char **arguments)
{
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
        for (int times = 0; times < 3; times++)
            work(launch_blocks, i);
        dlclose(library);
    }
    OK(cuCtxSynchronize());
    return 0;
}
