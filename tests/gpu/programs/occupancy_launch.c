// Launches kernels of many register counts with many block and shared-memory sizes, and prints the driver's own occupancy
// and best block size for each as one JSON line. occupancy_launch FOLDER NAME… (each NAME is FOLDER/NAME.cubin with a kernel NAME)
#include "expect.h"
#include <cuda.h>

int main(int argc, char **argv) {
  static const int blocks[] = {32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024};
  static const int shared[] = {0, 100, 1024, 5000, 8192, 16384, 24576, 33792, 49152, 65536, 100000, 115712, 166912, 232448};
  CUdevice device;
  CUcontext context;
  CUdeviceptr p;
  int most_shared, per_multiprocessor, rounds = 0;
  struct expect e = {0, 0, 0, 0, 0, 0, 0};
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuMemAlloc(&p, 65536));
  CHECK(cuDeviceGetAttribute(&most_shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device));
  CHECK(cuDeviceGetAttribute(&per_multiprocessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device));
  for (int i = 2; i < argc; i++) {
    char path[4096];
    CUmodule module;
    CUfunction function;
    int registers, fixed, most_threads;
    snprintf(path, sizeof path, "%s/%s.cubin", argv[1], argv[i]);
    CHECK(cuModuleLoad(&module, path));
    CHECK(cuModuleGetFunction(&function, module, argv[i]));
    CHECK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    CHECK(cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function));
    CHECK(cuFuncGetAttribute(&most_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most_shared - fixed));
    for (unsigned b = 0; b < sizeof blocks / sizeof *blocks; b++)
      for (unsigned s = 0; s < sizeof shared / sizeof *shared; s++) {
        if (blocks[b] > most_threads || shared[s] + fixed > most_shared) continue;
        int resident = -1, grid = 0, best = -1;
        CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, function, blocks[b], (size_t)shared[s]));
        CHECK(cuOccupancyMaxPotentialBlockSize(&grid, &best, function, NULL, (size_t)shared[s], 0));
        void *arguments[] = {&p, &rounds};
        CHECK(cuLaunchKernel(function, 1, 1, 1, (unsigned)blocks[b], 1, 1, (unsigned)shared[s], NULL, arguments, NULL));
        e.launches++;
        printf("{\"name\": \"%s\", \"block\": [%d, 1, 1], \"dynamic\": %d, \"static\": %d, \"registers\": %d, \"blocks\": %d, \"best\": %d, \"status\": 0, \"threads_per_multiprocessor\": %d}\n",
               argv[i], blocks[b], shared[s], fixed, registers, resident, best, per_multiprocessor);
      }
    CHECK(cuCtxSynchronize());
  }
  e.kernel_calls = e.launches;
  print_expect(&e);
  return 0;
}
