// Two queues of kernels of 2 ms, a second of them each and all launched at one go, after short ones.
#include "expect.h"
#include <unistd.h>

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
  // The first long ones, few enough to be no long queue themselves; then a turn in which they are delivered.
  for (int i = 0; i < 50; i++) spin<<<1, 1>>>(2000000);
  CHECK(cudaDeviceSynchronize());
  usleep(200000);
  for (int queue = 0; queue < queues; queue++) {
    for (int i = 0; i < queued; i++) spin<<<1, 1>>>(2000000);
    CHECK(cudaDeviceSynchronize());
  }
  struct expect e = {shorts + 50 + queues * queued, 0, 0, shorts + 50 + queues * queued, 0, 0, 0};
  print_expect(&e);
  return 0;
}
