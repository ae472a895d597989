/* The part of the CUDA driver API that the test programs use. Our own declarations. */
#ifndef DRIVER_H
#define DRIVER_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream, *CUevent, *CUgraph, *CUgraphExec;

CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetCount(int *count);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxSynchronize(void);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr pointer);
CUresult cuMemAllocHost_v2(void **pointer, size_t bytes);
CUresult cuMemFreeHost(void *pointer);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count);
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count);
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                        void **parameters, void **extra);
CUresult cuGetProcAddress(const char *name, void **address, int version, unsigned long long flags);
CUresult cuGetProcAddress_v2(const char *name, void **address, int version, unsigned long long flags, int *status);

/* Ends the program where a call fails: no test should go on after that. */
#define OK(call)                                                                                                      \
    do {                                                                                                              \
        CUresult code_ = (call);                                                                                      \
        if (code_ != 0) {                                                                                             \
            fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, code_);                                     \
            exit(99);                                                                                                 \
        }                                                                                                             \
    } while (0)

/* Two kernels that do nothing; the comments tell the simulated device how long they take. */
static const char *const KERNELS = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                   ".visible .entry first_kernel(.param .u64 unused)\n{\n"
                                   "// sim.duration_ns = 20000\n ret;\n}\n"
                                   ".visible .entry second_kernel(.param .u64 unused)\n{\n"
                                   "// sim.duration_ns = 50000\n ret;\n}\n";

typedef struct {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction first, second;
} Cuda;

/* Needs the driver linked directly; the programs that look it up otherwise do it themselves. */
static inline Cuda cuda_start(void)
{
    Cuda cuda;
    OK(cuInit(0));
    OK(cuDeviceGet(&cuda.device, 0));
    OK(cuDevicePrimaryCtxRetain(&cuda.context, cuda.device));
    OK(cuCtxSetCurrent(cuda.context));
    OK(cuModuleLoadData(&cuda.module, KERNELS));
    OK(cuModuleGetFunction(&cuda.first, cuda.module, "first_kernel"));
    OK(cuModuleGetFunction(&cuda.second, cuda.module, "second_kernel"));
    return cuda;
}

static inline void launch(CUfunction function, CUstream stream)
{
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    OK(cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, parameters, NULL));
}

#endif
