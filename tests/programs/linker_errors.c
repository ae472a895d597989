/* What dlerror says after failures of the dynamic linker, mixed with look-ups of the driver's names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static void said(const char *after)
{
    const char *text = dlerror();
    printf("%s: %s\n", after, text ? text : "nothing");
}

int main(void)
{
    dlopen("/nonexistent/first.so", RTLD_NOW);
    said("dlopen");
    said("the same again");
    dlsym(RTLD_DEFAULT, "no_such_function");
    said("RTLD_DEFAULT");
    dlsym(RTLD_DEFAULT, "cuInit");
    said("RTLD_DEFAULT cuInit");
    dlopen("/nonexistent/second.so", RTLD_NOW);
    dlsym(RTLD_DEFAULT, "printf");
    said("a success after a failure");
    dlsym(dlopen("libm.so.6", RTLD_NOW), "cuInit");
    said("libm's cuInit");
    dlsym(RTLD_NEXT, "cuLaunchKernel");
    said("RTLD_NEXT cuLaunchKernel");
    dlvsym(RTLD_DEFAULT, "cuInit", "X_1");
    said("cuInit of a version");
    return 0;
}
