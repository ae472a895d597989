// Eight threads launch kernels, copy, fill and replay graphs until stdin is closed; graphs were made before the
// first line on stdout, and every 200th round makes one more. With the argument `plain` there are no graphs, and
// with `blocking` two of the threads are besides inside of a copy most of the time, which waits for a kernel. Then
// it prints what there was of each. Its session is paused and goes on meanwhile.
#include "expect.h"
#include <atomic>
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
#include <memory>
#include <thread>
#include <vector>

__global__ void touch(int *value) { *value += 1; }

__global__ void spin(long ticks) {
  for (long begin = clock64(); clock64() - begin < ticks;) {
  }
}

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

static const long SPIN_TICKS = 20000000; // Some 10 ms.

static void work(bool has_graphs, bool blocks) {
  cudaStream_t stream;
  int *on_device, *pinned;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&on_device, 4096));
  CHECK(cudaMallocHost(&pinned, 4096));
  std::unique_ptr<Made> before;
  if (has_graphs) before = std::make_unique<Made>(stream, on_device, pinned);
  ready++;
  // The driver lets an allocation wait for as long as other threads launch without pause.
  while (ready < 8) std::this_thread::yield();
  for (long round = 0; !is_over; round++) {
    for (int i = 0; i < 10; i++) touch<<<1, 1, 0, stream>>>(on_device);
    launches += 10;
    if (blocks) {
      // Into memory that is not pinned: the call returns once it is done.
      int value;
      spin<<<1, 1, 0, stream>>>(SPIN_TICKS);
      CHECK(cudaMemcpyAsync(&value, on_device, 4, cudaMemcpyDeviceToHost, stream));
      launches += 1, copies += 1;
    }
    CHECK(cudaMemcpyAsync(on_device, pinned, 4096, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemsetAsync(on_device, 1, 4096, stream));
    copies += 1, fills += 1;
    if (has_graphs) {
      CHECK(cudaGraphLaunch(before->all, stream));
      replays += 1;
    }
    if (has_graphs && round % 200 == 199) {
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

int main(int count, char **arguments) {
  bool has_graphs = count < 2, has_blocking = !has_graphs && !strcmp(arguments[1], "blocking");
  CHECK(cudaFree(0));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++) threads.emplace_back(work, has_graphs, has_blocking && i < 2);
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
