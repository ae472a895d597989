/* Launches three times through the entry that the first argument says how to find. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>

typedef CUresult Launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                        void **, void **);

static void *find(const char *how)
{
    void *address = NULL;
    int status = -1;
    if (!strcmp(how, "dlsym"))
        return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuLaunchKernel");
    if (!strcmp(how, "default"))
        return dlsym(RTLD_DEFAULT, "cuLaunchKernel");
    if (!strcmp(how, "next"))
        return dlsym(RTLD_NEXT, "cuLaunchKernel");
    if (!strcmp(how, "per_thread"))
        return dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel_ptsz");
    if (!strcmp(how, "v1"))
        OK(cuGetProcAddress("cuLaunchKernel", &address, 11030, 0));
    if (!strcmp(how, "v2"))
        OK(cuGetProcAddress_v2("cuLaunchKernel", &address, 12000, 0, &status));
    if (!strcmp(how, "v2_per_thread"))
        OK(cuGetProcAddress_v2("cuLaunchKernel", &address, 12000, 2, &status));
    if (!strcmp(how, "asked_for_itself")) {
        CUresult (*again)(const char *, void **, int, unsigned long long, int *);
        OK(cuGetProcAddress_v2("cuGetProcAddress", (void **)&again, 12000, 0, &status));
        OK(again("cuLaunchKernel", &address, 12000, 0, &status));
    }
    if (!strcmp(how, "dlsym_then_v2")) {
        CUresult (*get)(const char *, void **, int, unsigned long long, int *);
        get = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
        OK(get("cuLaunchKernel", &address, 12000, 0, &status));
    }
    return address;
}

int main(int argc, char **argv)
{
    Cuda cuda = cuda_start();
    Launch *through = (Launch *)find(argc > 1 ? argv[1] : "dlsym");
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    if (!through)
        return 3;
    for (int i = 0; i < 3; i++)
        OK(through(cuda.first, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    OK(cuCtxSynchronize());
    return 0;
}
