/* A driver that does nothing, so that what is left of a traced call is the hook. */
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
__attribute__((noinline)) int cuLaunchKernel(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                             unsigned bz, unsigned shared, handle stream, handle *params, handle *extra)
{
    (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
    (void)shared, (void)stream, (void)params, (void)extra;
    __asm__ volatile("");
    return 0;
}
