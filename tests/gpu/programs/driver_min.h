// The driver API for test programs that must build without cuda.h and run on the simulated device too: found by dlopen,
// kernels from PTX text. `tick` and `tock` spin for a given number of clock cycles.
#ifndef GPUTRACE_TEST_DRIVER_MIN_H
#define GPUTRACE_TEST_DRIVER_MIN_H
#include "expect.h"
#include <dlfcn.h>
#include <stdint.h>

#define SPIN_KERNEL(name)                                                                                         \
  ".visible .entry " name "(.param .u64 cycles, .param .u64 data) {\n"                                            \
  "  // sim.duration_ns = 5000\n"                                                                                 \
  "  .reg .pred %p;\n  .reg .u64 %rd<6>;\n"                                                                       \
  "  ld.param.u64 %rd0, [cycles];\n  ld.param.u64 %rd4, [data];\n  mov.u64 %rd1, %clock64;\n"                     \
  "AGAIN:\n  mov.u64 %rd2, %clock64;\n  sub.u64 %rd3, %rd2, %rd1;\n  setp.lt.u64 %p, %rd3, %rd0;\n  @%p bra AGAIN;\n" \
  "  setp.eq.u64 %p, %rd4, 0;\n  @%p bra DONE;\n  st.global.u64 [%rd4], %rd3;\nDONE:\n  ret;\n}\n"

static const char kernels_ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n" SPIN_KERNEL("tick") SPIN_KERNEL("tock");

typedef void *driver_handle;
#define EACH_DRIVER(X)                                                                                     \
  X(cuInit, (unsigned))                                                                                    \
  X(cuDeviceGet, (int *, int))                                                                             \
  X(cuDevicePrimaryCtxRetain, (driver_handle *, int))                                                      \
  X(cuCtxSetCurrent, (driver_handle))                                                                      \
  X(cuCtxSynchronize, (void))                                                                              \
  X(cuModuleLoadData, (driver_handle *, const void *))                                                     \
  X(cuModuleGetFunction, (driver_handle *, driver_handle, const char *))                                   \
  X(cuMemAlloc_v2, (uint64_t *, size_t))                                                                   \
  X(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t))                                                     \
  X(cuMemsetD32_v2, (uint64_t, unsigned, size_t))                                                          \
  X(cuLaunchKernel, (driver_handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, driver_handle, void **, void **))
#define DECLARE_DRIVER(name, arguments) static int(*name) arguments;
EACH_DRIVER(DECLARE_DRIVER)

static driver_handle tick_function, tock_function;
static uint64_t device_data;

static void load_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) fprintf(stderr, "no driver: %s\n", dlerror()), exit(3);
#define BIND_DRIVER(name, arguments) \
  if (!(*(void **)&name = dlsym(library, #name))) fprintf(stderr, "no %s\n", #name), exit(3);
  EACH_DRIVER(BIND_DRIVER)
}

static void start_device(void) {
  int device;
  driver_handle context, module;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, kernels_ptx));
  CHECK(cuModuleGetFunction(&tick_function, module, "tick"));
  CHECK(cuModuleGetFunction(&tock_function, module, "tock"));
  CHECK(cuMemAlloc_v2(&device_data, 1 << 20));
}

static void launch(driver_handle function, uint64_t cycles) {
  uint64_t nowhere = 0;
  void *arguments[] = {&cycles, &nowhere};
  CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL));
}
#endif
