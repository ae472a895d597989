// `control_ranges runtime|driver|nvtx|none ROUNDS`: rounds of ten launches, of which every second one is
// inside of a range. Prints how many launches there were, and what the first and the later beginnings of a
// range took in microseconds.
#include "expect.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <vector>

__global__ void touch(int *value) { *value += 1; }

using Call = int (*)();

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "none";
  int rounds = count > 2 ? atoi(arguments[2]) : 4, done = 0;
  int *on_device;
  CHECK(cudaMalloc(&on_device, 4096));
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  Call start = driver ? (Call)dlsym(driver, "cuProfilerStart") : nullptr, stop = driver ? (Call)dlsym(driver, "cuProfilerStop") : nullptr;
  std::vector<double> took;
  for (int round = 0; round < rounds; round++) {
    bool is_inside = round % 2 == 1;
    auto begin = std::chrono::steady_clock::now();
    if (is_inside && !strcmp(how, "runtime")) CHECK(cudaProfilerStart());
    if (is_inside && !strcmp(how, "driver") && start) start();
    if (is_inside) took.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    for (int i = 0; i < 10; i++, done++) touch<<<1, 1>>>(on_device);
    if (is_inside && !strcmp(how, "runtime")) CHECK(cudaProfilerStop());
    if (is_inside && !strcmp(how, "driver") && stop) stop();
    CHECK(cudaDeviceSynchronize());
  }
  double first = took.empty() ? 0 : took[0];
  std::sort(took.begin(), took.end());
  printf("DID launches=%d first_us=%.0f median_us=%.0f most_us=%.0f\n", done, first, took.empty() ? 0 : took[took.size() / 2], took.empty() ? 0 : took.back());
  return 0;
}
