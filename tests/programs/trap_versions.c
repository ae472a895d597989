/* Looks the driver up through the dlsym of glibc before 2.34 and through the one since, and launches through each answer. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>

__asm__(".symver old_dlsym, dlsym@GLIBC_2.2.5");
extern void *old_dlsym(void *handle, const char *name);

typedef CUresult (*Launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

int main(void)
{
    Cuda cuda = cuda_start();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found[] = {dlsym(driver, "cuLaunchKernel"), old_dlsym(driver, "cuLaunchKernel"), old_dlsym(RTLD_DEFAULT, "cuLaunchKernel"), old_dlsym(RTLD_NEXT, "cuLaunchKernel")};
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    for (int i = 0; i < 4; i++)
        OK(((Launch)found[i])(cuda.first, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    OK(cuCtxSynchronize());
    printf("missing %d\n", old_dlsym(driver, "cuNoSuchFunction") != NULL);
    return 0;
}
