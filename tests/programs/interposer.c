/* Another preloaded library: its own cuLaunchKernel, which goes on to the next one and is counted.
   INTERPOSER says how the next one is found: "handle" or "next", at the first call, or "early", at load. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>

typedef CUresult Launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                        void **, void **);

static Launch *following;
static int seen;

static const char *how(void) { return getenv("INTERPOSER") ? getenv("INTERPOSER") : "handle"; }

static void find(void)
{
    void *handle = strcmp(how(), "next") ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) : RTLD_NEXT;
    following = (Launch *)dlsym(handle, "cuLaunchKernel");
}

__attribute__((constructor)) static void loaded(void)
{
    if (!strcmp(how(), "early"))
        find();
}

CUresult cuLaunchKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g,
                        unsigned shared_bytes, CUstream stream, void **parameters, void **extra)
{
    if (seen++ > 1000)
        abort(); /* It is being called by what it calls. */
    if (!following)
        find();
    return following ? following(f, a, b, c, d, e, g, shared_bytes, stream, parameters, extra) : 98;
}

__attribute__((destructor)) static void unloaded(void) { printf("the interposer saw %d launches\n", seen); }
