/* Takes the ways on which the tracer may call nothing that can be wrapped, each watched by wraps_imports: lookups,
   cuGetProcAddress, fork in parent and child, and the end that the argument names. Three launches. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *begin, *end;

static int find_tracer(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size, (void)unused;
    if (!strstr(object->dlpi_name, "/libgputrace.so"))
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_LOAD && (object->dlpi_phdr[i].p_flags & PF_X)) {
            begin = (const char *)object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
            end = begin + object->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

static void (*watch)(const char *, const char *, const char *);

static void watch_region(const char *name)
{
    if (watch)
        watch(name, begin, end);
}

static void look_up(const char *when)
{
    void *address;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    watch_region(when);
    dlsym(RTLD_DEFAULT, "getpid");
    dlsym(RTLD_NEXT, "getpid");
    dlsym(RTLD_DEFAULT, "nobody_has_this");
    dlvsym(RTLD_DEFAULT, "getpid", "GLIBC_2.2.5");
    dlsym(driver, "cuLaunchKernel");
    dlsym(driver, "cuNobodyHasThis");
    dlsym(RTLD_DEFAULT, "cuLaunchKernel");
    dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    dlsym(RTLD_DEFAULT, "cuptiSubscribe");
    dlsym(RTLD_DEFAULT, "_ZN5torch4none");
    watch_region(NULL);
    watch_region(when[0] == 'b' ? "before cuInit cuGetProcAddress" : "cuGetProcAddress");
    cuGetProcAddress("cuLaunchKernel", &address, 11030, 0);
    cuGetProcAddress_v2("cuLaunchKernel", &address, 12000, 0, NULL);
    cuGetProcAddress_v2("cuMemAlloc", &address, 12000, 0, NULL);
    watch_region(NULL);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "return";
    int status;
    watch = (void (*)(const char *, const char *, const char *))dlsym(RTLD_DEFAULT, "wraps_watch");
    dl_iterate_phdr(find_tracer, NULL);
    look_up("before cuInit dlsym");
    Cuda cuda = cuda_start();
    launch(cuda.first, NULL);
    look_up("dlsym");
    watch_region("fork");
    pid_t child = fork();
    watch_region(NULL);
    if (child == 0) {
        watch_region("exit in a child");
        _exit(0);
    }
    waitpid(child, &status, 0);
    watch_region("launch");
    launch(cuda.first, NULL);
    watch_region(NULL);
    launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    watch_region("exit");
    if (!strcmp(how, "_exit"))
        _exit(5);
    if (!strcmp(how, "quick_exit"))
        quick_exit(5);
    return 5;
}
