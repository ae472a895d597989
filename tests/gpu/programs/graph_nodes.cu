// A graph of 300 kernel nodes added one by one, three wide, with one node's argument updated halfway. graph_nodes [REPLAYS]
#include "expect.h"

__global__ void add(int *p, int by) { atomicAdd(p, by); }

int main(int argc, char **argv) {
  const int chains = 3, length = 100, replays = argc > 1 ? atoi(argv[1]) : 1000;
  int *p, by = 1, twice = 2;
  CHECK(cudaMalloc(&p, sizeof(int)));
  CHECK(cudaMemset(p, 0, sizeof(int)));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaDeviceSynchronize());
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaGraphCreate(&graph, 0));
  void *arguments[] = {&p, &by}, *updated[] = {&p, &twice};
  cudaKernelNodeParams params = {};
  params.func = (void *)add;
  params.gridDim = dim3(1);
  params.blockDim = dim3(1);
  params.kernelParams = arguments;
  cudaGraphNode_t last[chains], first;
  for (int c = 0; c < chains; c++)
    for (int i = 0; i < length; i++) {
      cudaGraphNode_t node;
      CHECK(cudaGraphAddKernelNode(&node, graph, i ? &last[c] : nullptr, i ? 1 : 0, &params));
      if (c == 0 && i == 0) first = node;
      last[c] = node;
    }
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < replays / 2; i++) CHECK(cudaGraphLaunch(exec, stream));
  params.kernelParams = updated;
  CHECK(cudaGraphExecKernelNodeSetParams(exec, first, &params));
  for (int i = replays / 2; i < replays; i++) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  int got = 0;
  CHECK(cudaMemcpy(&got, p, sizeof got, cudaMemcpyDeviceToHost));
  if (got != chains * length * replays + (replays - replays / 2)) return 4;
  long nodes_run = (long)chains * length * replays;
  struct expect e = {0, 0, replays, nodes_run, nodes_run, 1, 1};
  print_expect(&e);
  return 0;
}
