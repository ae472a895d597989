// Kernel records by the million: replays of one graph of NODES tiny kernels in four chains, with the device memory in use
// looked at on the way. graph_soak REPLAYS [SECONDS]; stops early when the seconds are over and says how far it came.
#include "expect.h"
#include <chrono>

__global__ void tiny(int *p) { if (threadIdx.x == 0 && blockIdx.x == 1) *p = 1; }

static double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

static size_t used_bytes() {
  size_t unused = 0, total = 0;
  CHECK(cudaMemGetInfo(&unused, &total));
  return total - unused;
}

int main(int argc, char **argv) {
  const int chains = 4, length = 250, replays = argc > 1 ? atoi(argv[1]) : 100;
  const double limit = argc > 2 ? atof(argv[2]) : 1e9;
  int *p;
  CHECK(cudaMalloc(&p, sizeof(int)));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaGraphCreate(&graph, 0));
  void *arguments[] = {&p};
  cudaKernelNodeParams params = {};
  params.func = (void *)tiny;
  params.gridDim = dim3(1);
  params.blockDim = dim3(32);
  params.kernelParams = arguments;
  for (int c = 0; c < chains; c++) {
    cudaGraphNode_t last;
    for (int i = 0; i < length; i++) {
      cudaGraphNode_t node;
      CHECK(cudaGraphAddKernelNode(&node, graph, i ? &last : nullptr, i ? 1 : 0, &params));
      last = node;
    }
  }
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 20; i++) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  const double start = seconds();
  const int step = replays / 20 > 0 ? replays / 20 : 1;
  int done = 0;
  fprintf(stderr, "INFO replays=0 used_bytes=%zu\n", used_bytes());
  while (done < replays && seconds() - start < limit) {
    CHECK(cudaGraphLaunch(exec, stream));
    done++;
    if (done % 50 == 0 || done == replays) CHECK(cudaStreamSynchronize(stream));
    if (done % step == 0) fprintf(stderr, "INFO replays=%d used_bytes=%zu seconds=%.2f\n", done, used_bytes(), seconds() - start);
  }
  CHECK(cudaStreamSynchronize(stream));
  fprintf(stderr, "INFO loop replays=%d seconds=%.3f\n", done, seconds() - start);
  const long nodes = (long)chains * length * (done + 20);
  struct expect e = {0, 0, done + 20, nodes, nodes, 0, 0};
  print_expect(&e);
  return 0;
}
