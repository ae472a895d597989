/* What look-ups give a program that has no CUDA loaded: printed, to be compared with and without the tracer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

static void show(const char *what, void *found)
{
    const char *error = dlerror();
    printf("%s: %s, %s", what, found ? "found" : "nothing", error ? error : "no error");
    /* The second call frees the first one's text. */
    printf(", then %s\n", dlerror() ? "an error" : "no error");
}

int main(void)
{
    void *self = dlopen(NULL, RTLD_NOW), *math = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    errno = 77;
    show("RTLD_DEFAULT cuInit", dlsym(RTLD_DEFAULT, "cuInit"));
    printf("errno %d\n", errno);
    show("RTLD_NEXT cuInit", dlsym(RTLD_NEXT, "cuInit"));
    show("self cuLaunchKernel", dlsym(self, "cuLaunchKernel"));
    show("self cuGetProcAddress_v2", dlsym(self, "cuGetProcAddress_v2"));
    show("libm cuInit", dlsym(math, "cuInit"));
    show("libm cos", dlsym(math, "cos"));
    show("self no_such_symbol", dlsym(self, "no_such_symbol"));
    show("RTLD_DEFAULT printf", dlsym(RTLD_DEFAULT, "printf"));
    show("dlvsym libm cos", dlvsym(math, "cos", "GLIBC_NOT_THERE"));
    show("dlvsym RTLD_DEFAULT cuInit", dlvsym(RTLD_DEFAULT, "cuInit", "GLIBC_2.2.5"));
    show("RTLD_DEFAULT cuptiSubscribe", dlsym(RTLD_DEFAULT, "cuptiSubscribe"));
    show("RTLD_NEXT cuptiGetTimestamp", dlsym(RTLD_NEXT, "cuptiGetTimestamp"));
    show("self cuptiActivityEnable", dlsym(self, "cuptiActivityEnable"));
    show("self cuptiNoSuchFunction", dlsym(self, "cuptiNoSuchFunction"));
    show("dlvsym RTLD_DEFAULT cuptiFinalize", dlvsym(RTLD_DEFAULT, "cuptiFinalize", "GLIBC_2.2.5"));
    printf("missing library: %s\n", dlopen("libcuda.so.1", RTLD_NOW) ? "found" : "nothing");
    return 0;
}
