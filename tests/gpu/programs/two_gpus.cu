// Kernels on two devices and copies between them, by cudaMemcpyPeerAsync and by a plain device-to-device copy.
#include "expect.h"

__global__ void add(int *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] += 1;
}

int main() {
  const int n = 1 << 20, launches = 50, peers = 10;
  int devices = 0, can[2] = {0, 0}, got = 0, *p[2];
  CHECK(cudaGetDeviceCount(&devices));
  if (devices < 2) return 6;
  cudaStream_t stream[2];
  struct expect e = {0, 0, 0, 0, 0, 0, 0};
  for (int d = 0; d < 2; d++) {
    CHECK(cudaSetDevice(d));
    CHECK(cudaDeviceCanAccessPeer(&can[d], d, 1 - d));
    if (can[d]) CHECK(cudaDeviceEnablePeerAccess(1 - d, 0));
    CHECK(cudaStreamCreate(&stream[d]));
    CHECK(cudaMalloc(&p[d], n * sizeof(int)));
    CHECK(cudaMemsetAsync(p[d], 0, n * sizeof(int), stream[d])), e.memsets++;
  }
  printf("peer access %d %d\n", can[0], can[1]);
  for (int d = 0; d < 2; d++) {
    CHECK(cudaSetDevice(d));
    for (int i = 0; i < launches * (d + 1); i++) add<<<n / 256, 256, 0, stream[d]>>>(p[d], n), e.launches++;
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream[d]));
  }
  for (int i = 0; i < peers; i++) {
    CHECK(cudaSetDevice(i % 2));
    CHECK(cudaMemcpyPeerAsync(p[1 - i % 2], 1 - i % 2, p[i % 2], i % 2, n * sizeof(int), stream[i % 2])), e.copies++;
    CHECK(cudaStreamSynchronize(stream[i % 2]));
  }
  CHECK(cudaMemcpyAsync(p[1], p[0], 4096, cudaMemcpyDefault, stream[1])), e.copies++;
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(&got, p[1] + n - 1, sizeof got, cudaMemcpyDeviceToHost)), e.copies++;
  if (got != launches) return 4;
  e.kernel_calls = e.launches;
  printf("device_launches 0=%d 1=%d peer_copies=%d peer_bytes=%ld\n", launches, 2 * launches, peers + 1, (long)peers * n * 4 + 4096);
  print_expect(&e);
  return 0;
}
