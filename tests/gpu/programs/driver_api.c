// The driver API by itself, resolved in the way chosen at build time. driver_api FATBIN
// RESOLVE_LINK: exported symbols; RESOLVE_DLSYM: dlopen and dlsym; RESOLVE_GETPROC: cuGetProcAddress, which itself comes by dlsym.
#define _GNU_SOURCE
#include "expect.h"
#include <cuda.h>
#include <dlfcn.h>

#define STRING2(x) #x
#define STRING(x) STRING2(x)

#if defined(RESOLVE_LINK)
static void *resolve(const char *name) { (void)name; return NULL; }
#define DRIVER(name) name
#define BIND(name)
#else
static void *library;
#if defined(RESOLVE_DLSYM)
static void *resolve(const char *name) { return dlsym(library, name); }
#else
static CUresult (*get_proc)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
static void *resolve(const char *name) {
  void *found = NULL;
  if (get_proc(name, &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL)) return NULL;
  return found;
}
#endif
#define DRIVER(name) p_##name
// cuda.h renames (cuMemAlloc is cuMemAlloc_v2): dlsym needs the expanded name, cuGetProcAddress the plain one.
#if defined(RESOLVE_DLSYM)
#define BIND(name) if (!(*(void **)&p_##name = resolve(STRING(name)))) return 3;
#else
#define BIND(name) if (!(*(void **)&p_##name = resolve(#name))) return 3;
#endif
#endif

#define EACH(X)                                                                                        \
  X(cuInit) X(cuDeviceGet) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuModuleLoad)              \
  X(cuModuleGetFunction) X(cuMemAlloc) X(cuMemFree) X(cuMemcpyHtoD) X(cuMemcpyDtoHAsync)               \
  X(cuMemcpyDtoDAsync) X(cuMemsetD32Async) X(cuMemcpy2D) X(cuLaunchKernel) X(cuLaunchKernelEx)         \
  X(cuLaunchCooperativeKernel) X(cuStreamCreate) X(cuStreamSynchronize) X(cuStreamDestroy)             \
  X(cuEventCreate) X(cuEventRecord) X(cuEventSynchronize) X(cuStreamWaitEvent) X(cuModuleUnload)       \
  X(cuMemAllocHost) X(cuMemFreeHost) X(cuDevicePrimaryCtxRelease)

#if !defined(RESOLVE_LINK)
#define DECLARE(name) static __typeof__(&name) p_##name;
EACH(DECLARE)
#endif

int main(int argc, char **argv) {
  if (argc < 2) return 3;
#if !defined(RESOLVE_LINK)
  library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return 3;
#if defined(RESOLVE_GETPROC)
  *(void **)&get_proc = dlsym(library, "cuGetProcAddress_v2");
  if (!get_proc) return 3;
#endif
  EACH(BIND)
#else
  (void)resolve;
#endif
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction add, add_shared;
  CUstream stream;
  CUevent event;
  CUdeviceptr a, b;
  int by = 1, *host;
  CHECK(DRIVER(cuInit)(0));
  CHECK(DRIVER(cuDeviceGet)(&device, 0));
  CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, device));
  CHECK(DRIVER(cuCtxSetCurrent)(context));
  CHECK(DRIVER(cuModuleLoad)(&module, argv[1]));
  CHECK(DRIVER(cuModuleGetFunction)(&add, module, "add"));
  CHECK(DRIVER(cuModuleGetFunction)(&add_shared, module, "add_shared"));
  CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(DRIVER(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
  CHECK(DRIVER(cuMemAlloc)(&a, 65536));
  CHECK(DRIVER(cuMemAlloc)(&b, 65536));
  CHECK(DRIVER(cuMemAllocHost)((void **)&host, 65536));
  for (int i = 0; i < 16384; i++) host[i] = 5;
  struct expect e = {0, 0, 0, 0, 0, 0, 0};

  CHECK(DRIVER(cuMemcpyHtoD)(a, host, 65536)), e.copies++;
  CHECK(DRIVER(cuMemsetD32Async)(b, 7, 16384, stream)), e.memsets++;
  CHECK(DRIVER(cuEventRecord)(event, stream));
  CHECK(DRIVER(cuStreamWaitEvent)(stream, event, 0));
  CHECK(DRIVER(cuEventSynchronize)(event));
  void *arguments[] = {&a, &by};
  for (int i = 0; i < 100; i++) CHECK(DRIVER(cuLaunchKernel)(add, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL)), e.launches++;
  CUlaunchConfig config = {0};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 64;
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = 64 * sizeof(int);
  config.hStream = stream;
  for (int i = 0; i < 50; i++) CHECK(DRIVER(cuLaunchKernelEx)(&config, add_shared, arguments, NULL)), e.launches++;
  for (int i = 0; i < 25; i++)
    CHECK(DRIVER(cuLaunchCooperativeKernel)(add_shared, 1, 1, 1, 32, 1, 1, 32 * sizeof(int), stream, arguments)), e.launches++;
  CHECK(DRIVER(cuMemcpyDtoDAsync)(b, a, 4096, stream)), e.copies++;
  CHECK(DRIVER(cuStreamSynchronize)(stream));
  CUDA_MEMCPY2D copy = {0};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = a;
  copy.dstDevice = b + 32768;
  copy.srcPitch = copy.dstPitch = 256;
  copy.WidthInBytes = 128;
  copy.Height = 16;
  CHECK(DRIVER(cuMemcpy2D)(&copy)), e.copies++;
  CHECK(DRIVER(cuStreamSynchronize)(NULL));
  CHECK(DRIVER(cuMemcpyDtoHAsync)(host, b, 65536, stream)), e.copies++;
  CHECK(DRIVER(cuStreamSynchronize)(stream));
  if (host[0] != 5 + e.launches || host[2048] != 7 || host[8192] != 5 + e.launches) return 4;
  e.kernel_calls = e.launches;
  print_expect(&e);
  CHECK(DRIVER(cuEventSynchronize)(event));
  CHECK(DRIVER(cuStreamDestroy)(stream));
  CHECK(DRIVER(cuMemFree)(a));
  CHECK(DRIVER(cuMemFree)(b));
  CHECK(DRIVER(cuMemFreeHost)(host));
  CHECK(DRIVER(cuModuleUnload)(module));
  CHECK(DRIVER(cuDevicePrimaryCtxRelease)(device));
  return 0;
}
