/* A driver that does nothing, so that what is left of a traced call is the hook. With BUSY_TICKS a launch takes that many
 * ticks of the clock, and touches 16 KiB, as a real driver does. */
#ifdef BUSY_TICKS
#include <x86intrin.h>
static volatile char of_driver[16 << 10];
#endif
typedef void *handle;

int cuInit(unsigned flags) { return (void)flags, 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuCtxGetCurrent(handle *context) { return *context = (handle)0x1000, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }
int cuCtxCreate_v2(handle *context, unsigned flags, int device)
{
    return *context = (handle)0x1000, (void)flags, (void)device, 0;
}
int cuModuleGetFunction(handle *function, handle module, const char *name)
{
    return *function = (handle)0x5550, (void)module, (void)name, 0;
}
int cuLibraryLoadData(handle *library, const void *image, handle *jit, handle *jit_values, unsigned jit_count, handle *options, handle *values,
                      unsigned count)
{
    static char *next = (char *)0x7770000;
    (void)image, (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return *library = next += 0x1000, 0;
}
int cuLibraryGetKernel(handle *kernel, handle library, const char *name)
{
    static char *next = (char *)0x55500000;
    return *kernel = next += 0x280, (void)library, (void)name, 0;
}
__attribute__((noinline)) int cuLaunchKernel(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                             unsigned bz, unsigned shared, handle stream, handle *params, handle *extra)
{
    (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
    (void)shared, (void)stream, (void)params, (void)extra;
    __asm__ volatile("");
#ifdef BUSY_TICKS
    unsigned long long begun = __rdtsc();
    for (unsigned at = 0; at < sizeof of_driver; at += 64)
        of_driver[at]++;
    while (__rdtsc() - begun < BUSY_TICKS)
        _mm_pause();
#endif
    return 0;
}
