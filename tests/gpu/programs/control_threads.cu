// Eight threads launch kernels, copy, fill and replay graphs until stdin is closed; graphs were made before the first line on stdout, and
// every 200th round makes one more. Then it prints what there was of each. Its session is paused and goes on meanwhile.
#include "expect.h"
#include <atomic>
#include <cstdio>
#include <cuda_runtime.h>
#include <thread>
#include <vector>

__global__ void touch(int *value) { *value += 1; }

static std::atomic<bool> is_over{false};
static std::atomic<long> launches{0}, replays{0}, copies{0}, fills{0}, waits{0}, captured{0}, ready{0};

struct Made {
  cudaGraph_t graph;
  cudaGraphExec_t all;
  Made(cudaStream_t stream, int *on_device, int *pinned) {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 4; i++) touch<<<1, 1, 0, stream>>>(on_device);
    CHECK(cudaMemcpyAsync(on_device, pinned, 4, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemsetAsync(on_device, 0, 4, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&all, graph, 0));
    captured += 4;
  }
  ~Made() {
    cudaGraphExecDestroy(all);
    cudaGraphDestroy(graph);
  }
};

static void work() {
  cudaStream_t stream;
  int *on_device, *pinned;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&on_device, 4096));
  CHECK(cudaMallocHost(&pinned, 4096));
  Made before(stream, on_device, pinned);
  ready++;
  for (long round = 0; !is_over; round++) {
    for (int i = 0; i < 10; i++) touch<<<1, 1, 0, stream>>>(on_device);
    launches += 10;
    CHECK(cudaMemcpyAsync(on_device, pinned, 4096, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemsetAsync(on_device, 1, 4096, stream));
    CHECK(cudaGraphLaunch(before.all, stream));
    copies += 1, fills += 1, replays += 1;
    if (round % 200 == 199) {
      Made later(stream, on_device, pinned);
      CHECK(cudaGraphLaunch(later.all, stream));
      CHECK(cudaStreamSynchronize(stream));
      replays += 1, waits += 1;
    }
    if (round % 4 == 3) {
      CHECK(cudaStreamSynchronize(stream));
      waits += 1;
    }
  }
  CHECK(cudaStreamSynchronize(stream));
  waits += 1;
}

int main() {
  CHECK(cudaFree(0));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++) threads.emplace_back(work);
  while (ready < 8) std::this_thread::yield();
  puts("ready");
  fflush(stdout);
  getchar();
  is_over = true;
  for (auto &each : threads) each.join();
  CHECK(cudaDeviceSynchronize());
  printf("DID launches=%ld replays=%ld copies=%ld memsets=%ld waits=%ld captured=%ld\n", (long)launches, (long)replays, (long)copies, (long)fills, (long)waits + 1, (long)captured);
  return 0;
}
