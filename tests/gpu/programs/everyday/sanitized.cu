// A program for -fsanitize=address: kernels, copies, memory of its own, threads of its own.
#include "../expect.h"
#include <thread>
#include <vector>

__global__ void scale(float *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] *= 2;
}

int main() {
  const int n = 1 << 14, threads = 4, launches = 20;
  std::vector<float> sums(threads);
  std::vector<std::thread> all;
  for (int t = 0; t < threads; t++)
    all.emplace_back([&, t] {
      std::vector<float> host(n, 1.0f / (1 << launches));
      float *device;
      cudaStream_t stream;
      CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      CHECK(cudaMalloc(&device, n * sizeof(float)));
      CHECK(cudaMemcpyAsync(device, host.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream));
      for (int i = 0; i < launches; i++) scale<<<n / 256, 256, 0, stream>>>(device, n);
      CHECK(cudaGetLastError());
      CHECK(cudaMemcpyAsync(host.data(), device, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
      CHECK(cudaStreamSynchronize(stream));
      for (float value : host) sums[t] += value;
      CHECK(cudaFree(device));
      CHECK(cudaStreamDestroy(stream));
    });
  for (auto &thread : all) thread.join();
  float total = 0;
  for (float sum : sums) total += sum;
#ifdef __SANITIZE_ADDRESS__
  const char *checked = "address";
#else
  const char *checked = "none";
#endif
  printf("sanitizer %s total %.1f\n", checked, total);
  struct expect e = {threads * launches, 0, 0, threads * launches, 0, 2 * threads, 0};
  print_expect(&e);
  return total == n * threads ? 0 : 4;
}
