// Two queues of kernels of 2 ms, a second of them each and all launched at one go, right after short ones.
#include "expect.h"

__global__ void spin(long long ns) {
  long long begun, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begun < ns);
}

int main() {
  const int shorts = 20000, queues = 2, queued = 500;
  for (int i = 0; i < shorts; i++) spin<<<1, 1>>>(1000);
  CHECK(cudaDeviceSynchronize());
  for (int queue = 0; queue < queues; queue++) {
    for (int i = 0; i < queued; i++) spin<<<1, 1>>>(2000000);
    CHECK(cudaDeviceSynchronize());
  }
  struct expect e = {shorts + queues * queued, 0, 0, shorts + queues * queued, 0, 0, 0};
  print_expect(&e);
  return 0;
}
