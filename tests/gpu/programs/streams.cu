// A hundred streams, with kernels and pinned copies in each.
#include "expect.h"
#include <vector>

__global__ void scale(float *p, float by) { p[threadIdx.x] *= by; }

int main() {
  const int streams = 100, rounds = 20, n = 256;
  float *host, *device;
  CHECK(cudaMallocHost(&host, streams * n * sizeof(float)));
  CHECK(cudaMalloc(&device, streams * n * sizeof(float)));
  for (int i = 0; i < streams * n; i++) host[i] = 1.0f;
  std::vector<cudaStream_t> all(streams);
  for (auto &s : all) CHECK(cudaStreamCreate(&s));
  for (int s = 0; s < streams; s++)
    CHECK(cudaMemcpyAsync(device + s * n, host + s * n, n * sizeof(float), cudaMemcpyHostToDevice, all[s]));
  for (int r = 0; r < rounds; r++)
    for (int s = 0; s < streams; s++) scale<<<1, n, 0, all[s]>>>(device + s * n, 1.0f);
  CHECK(cudaGetLastError());
  for (int s = 0; s < streams; s++)
    CHECK(cudaMemcpyAsync(host + s * n, device + s * n, n * sizeof(float), cudaMemcpyDeviceToHost, all[s]));
  CHECK(cudaDeviceSynchronize());
  for (auto &s : all) CHECK(cudaStreamDestroy(s));
  if (host[0] != 1.0f || host[streams * n - 1] != 1.0f) return 4;
  struct expect e = {streams * rounds, 0, 0, streams * rounds, 0, 2 * streams, 0};
  print_expect(&e);
  return 0;
}
