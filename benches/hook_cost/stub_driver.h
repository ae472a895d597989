/* What programs that are measured call of stub_driver.c, and the time. */
#include <time.h>

typedef void *handle;
int cuInit(unsigned flags);
int cuCtxCreate_v2(handle *context, unsigned flags, int device);
int cuModuleGetFunction(handle *function, handle module, const char *name);
int cuLibraryLoadData(handle *library, const void *image, handle *jit, handle *jit_values, unsigned jit_count, handle *options, handle *values,
                      unsigned count);
int cuLibraryGetKernel(handle *kernel, handle library, const char *name);
int cuLaunchKernel(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   handle stream, handle *params, handle *extra);

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

/* What is launched, from begin on. */
static handle function;

static void begin(void)
{
    handle context;
    cuInit(0);
    cuCtxCreate_v2(&context, 0, 0);
    cuModuleGetFunction(&function, (handle)8, "kernel");
}
