// Host threads launch at once, each on a stream of its own: threads [8].
#include "expect.h"
#include <atomic>
#include <thread>
#include <vector>

__global__ void add_one(int *p) { atomicAdd(p, 1); }

int main(int count, char **arguments) {
  const int threads = count > 1 ? atoi(arguments[1]) : 8, launches = 1000;
  int *counter;
  CHECK(cudaMalloc(&counter, sizeof(int)));
  CHECK(cudaMemset(counter, 0, sizeof(int)));
  CHECK(cudaDeviceSynchronize());
  std::atomic<int> ready{0};
  std::vector<std::thread> all;
  for (int t = 0; t < threads; t++)
    all.emplace_back([&] {
      CHECK(cudaSetDevice(0));
      cudaStream_t stream;
      CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      ready++;
      while (ready < threads) std::this_thread::yield();
      for (int i = 0; i < launches; i++) add_one<<<1, 1, 0, stream>>>(counter);
      CHECK(cudaGetLastError());
      CHECK(cudaStreamSynchronize(stream));
      CHECK(cudaStreamDestroy(stream));
    });
  for (auto &t : all) t.join();
  int got = 0;
  CHECK(cudaMemcpy(&got, counter, sizeof got, cudaMemcpyDeviceToHost));
  if (got != threads * launches) return 4;
  struct expect e = {threads * launches, 0, 0, threads * launches, 0, 1, 1};
  print_expect(&e);
  return 0;
}
