// A graph of 300 nodes made by stream capture: 298 kernels, a copy, a memset. graph_capture [REPLAYS]
#include "expect.h"

__global__ void add(int *p, int by) { *p += by; }

int main(int argc, char **argv) {
  const int kernels = 298, replays = argc > 1 ? atoi(argv[1]) : 1000, eager = 5;
  int *p, *copy;
  CHECK(cudaMalloc(&p, 4096));
  CHECK(cudaMalloc(&copy, 4096));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int i = 0; i < eager; i++) add<<<1, 1, 0, stream>>>(p, 1);
  CHECK(cudaStreamSynchronize(stream));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMemsetAsync(p, 0, 4096, stream));
  for (int i = 0; i < kernels; i++) add<<<1, 1, 0, stream>>>(p, 1);
  CHECK(cudaMemcpyAsync(copy, p, 4096, cudaMemcpyDeviceToDevice, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  if (nodes != kernels + 2) return 5;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < replays; i++) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  int got = 0;
  CHECK(cudaMemcpy(&got, copy, sizeof got, cudaMemcpyDeviceToHost));
  if (got != kernels) return 4;
  long nodes_run = (long)kernels * replays;
  struct expect e = {eager, kernels, replays, eager + nodes_run, nodes_run + 2 * replays, replays + 1, replays};
  print_expect(&e);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  return 0;
}
