/* A driver without locks and without work: launches count and return. A program may launch in a
 * signal handler that interrupted a launch, and what goes wrong then is ours and not the driver's. */
#include <string.h>

typedef int CUresult;
static long some_place;

CUresult cuInit(unsigned flags) { return (int)flags; }
CUresult cuDriverGetVersion(int *version) { *version = 12080; return 0; }
CUresult cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
CUresult cuDeviceGetCount(int *count) { *count = 1; return 0; }
CUresult cuDeviceGetName(char *name, int length, int device) { (void)device; strncpy(name, "nothing", length); return 0; }
CUresult cuDeviceGetAttribute(int *value, int attribute, int device) { (void)attribute, (void)device; *value = 1; return 0; }
CUresult cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = 1 << 20; return 0; }
CUresult cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = &some_place; return 0; }
CUresult cuCtxSetCurrent(void *context) { (void)context; return 0; }
CUresult cuCtxGetCurrent(void **context) { *context = &some_place; return 0; }
CUresult cuCtxGetDevice(int *device) { *device = 0; return 0; }
CUresult cuCtxSynchronize(void) { return 0; }
CUresult cuModuleLoadData(void **module, const void *image) { (void)image; *module = &some_place; return 0; }
CUresult cuModuleGetFunction(void **function, void *module, const char *name) { (void)module, (void)name; *function = &some_place; return 0; }
CUresult cuFuncGetName(const char **name, void *function) { (void)function; *name = "first_kernel"; return 0; }
CUresult cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, void *stream, void **parameters, void **extra)
{
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;
    (void)parameters, (void)extra;
    return 0;
}

typedef unsigned long long CUdeviceptr;
CUresult cuModuleUnload(void *module) { (void)module; return 0; }
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) { (void)bytes; *pointer = 4096; return 0; }
CUresult cuMemFree_v2(CUdeviceptr pointer) { (void)pointer; return 0; }
CUresult cuMemAllocHost_v2(void **pointer, size_t bytes) { (void)bytes; *pointer = &some_place; return 0; }
CUresult cuMemFreeHost(void *pointer) { (void)pointer; return 0; }
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) { (void)to, (void)from, (void)bytes; return 0; }
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) { (void)to, (void)from, (void)bytes; return 0; }
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, void *stream)
{
    (void)to, (void)from, (void)bytes, (void)stream;
    return 0;
}
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) { (void)to, (void)value, (void)count; return 0; }
CUresult cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = &some_place; return 0; }
CUresult cuStreamDestroy_v2(void *stream) { (void)stream; return 0; }
CUresult cuStreamSynchronize(void *stream) { (void)stream; return 0; }
CUresult cuStreamBeginCapture_v2(void *stream, int mode) { (void)stream, (void)mode; return 0; }
CUresult cuStreamEndCapture(void *stream, void **graph) { (void)stream; *graph = &some_place; return 0; }
CUresult cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags)
{
    (void)graph, (void)flags;
    *exec = &some_place;
    return 0;
}
CUresult cuGraphLaunch(void *exec, void *stream) { (void)exec, (void)stream; return 0; }
CUresult cuGraphExecDestroy(void *exec) { (void)exec; return 0; }
CUresult cuGraphDestroy(void *graph) { (void)graph; return 0; }
