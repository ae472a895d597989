/* cuGetProcAddress finds what the linker finds, for every version and kind of stream, and nothing else. */
#include "sim.h"
#include <dlfcn.h>

static void finds(const char *name, int version, unsigned long long flags, const char *symbol)
{
    void *address = &address;
    int status = 9;
    OK(cuGetProcAddress_v2(name, &address, version, flags, &status));
    EQ(status, 0);
    CHECK(address != NULL && address == dlsym(RTLD_DEFAULT, symbol));
}

static void finds_nothing(const char *name, int version, int wanted)
{
    void *address = &address;
    int status = 9;
    EQ(cuGetProcAddress_v2(name, &address, version, 0, &status), 500);
    EQ(status, wanted);
    CHECK(address == NULL);
}

int main(void)
{
    finds("cuInit", 2000, 0, "cuInit"); /* Before cuInit, too. */
    start();
    finds("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
    finds("cuMemcpyHtoDAsync", 13000, 0, "cuMemcpyHtoDAsync_v2");
    finds("cuMemcpyHtoDAsync", 13000, 1, "cuMemcpyHtoDAsync_v2");
    finds("cuMemcpyHtoDAsync", 13000, 2, "cuMemcpyHtoDAsync_v2_ptsz");
    finds("cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds");
    finds("cuCtxCreate", 12040, 0, "cuCtxCreate_v3");
    finds("cuCtxCreate", 12050, 0, "cuCtxCreate_v4");
    finds("cuStreamGetCaptureInfo", 11030, 2, "cuStreamGetCaptureInfo_v2_ptsz");
    finds("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
    finds_nothing("cuNoSuchThing", 13000, 1);
    finds_nothing("cuLaunchKernelEx", 11000, 2);
    finds_nothing("cuMemAlloc_v2", 13000, 1);
    EQ(cuGetProcAddress_v2(NULL, &(void *){0}, 13000, 0, NULL), 1);
    EQ(cuGetProcAddress_v2("cuInit", &(void *){0}, 13000, 64, NULL), 1);
    CHECK(dlsym(RTLD_DEFAULT, "gputrace_sim_version") != NULL);
    return 0;
}
