// Keeps devices busy and holds memory until its stdin ends. monitor_busy MIB [DEVICES]: device N holds (N + 1) * MIB. Prints "ready PID" once all devices work.
#include "expect.h"
#include <atomic>
#include <thread>
#include <unistd.h>

__global__ void spin_for(long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
}

int main(int argc, char **argv) {
  const size_t mib = argc > 1 ? atoi(argv[1]) : 512;
  int devices = 0, wanted = argc > 2 ? atoi(argv[2]) : 64;
  CHECK(cudaGetDeviceCount(&devices));
  if (devices > wanted) devices = wanted;
  for (int d = 0; d < devices; d++) {
    char *held;
    CHECK(cudaSetDevice(d));
    CHECK(cudaMalloc(&held, (d + 1) * mib << 20));
    CHECK(cudaMemset(held, 1, (d + 1) * mib << 20));
    spin_for<<<64, 32>>>(1000000);
    CHECK(cudaDeviceSynchronize());
  }
  printf("ready %d\n", (int)getpid());
  fflush(stdout);
  std::atomic<bool> ended{false};
  std::thread([&] { while (getchar() != EOF) {} ended = true; }).detach();
  while (!ended) {
    // A few milliseconds of work a turn, always two turns ahead of the device.
    for (int d = 0; d < devices; d++) {
      CHECK(cudaSetDevice(d));
      for (int i = 0; i < 2; i++) spin_for<<<64, 32>>>(5000000);
    }
    for (int d = 0; d < devices; d++) {
      CHECK(cudaSetDevice(d));
      CHECK(cudaDeviceSynchronize());
    }
  }
  return 0;
}
