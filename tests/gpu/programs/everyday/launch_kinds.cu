// Launches of other kinds: cooperative ones, clusters by attribute and by declaration, and a dependent launch.
#include "../expect.h"
#include <cooperative_groups.h>
namespace groups = cooperative_groups;

__global__ void cooperative(int *sums, int n) {
  groups::grid_group grid = groups::this_grid();
  atomicAdd(&sums[0], 1);
  grid.sync();
  if (grid.thread_rank() == 0) sums[1] += sums[0] == n ? 1 : 100;
  grid.sync();
  if (grid.thread_rank() == 0) sums[0] = 0;
}

__global__ void clustered(int *sums) {
#if __CUDA_ARCH__ >= 900
  groups::cluster_group cluster = groups::this_cluster();
  cluster.sync();
  if (cluster.thread_rank() == 0) atomicAdd(&sums[2], (int)cluster.num_blocks());
#endif
}

__global__ void __cluster_dims__(2, 1, 1) declared(int *sums) {
#if __CUDA_ARCH__ >= 900
  groups::cluster_group cluster = groups::this_cluster();
  cluster.sync();
  if (cluster.thread_rank() == 0) atomicAdd(&sums[3], (int)cluster.num_blocks());
#endif
}

__global__ void dependent(int *sums) {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
  if (threadIdx.x == 0) sums[4] += 1;
}

static cudaLaunchConfig_t configuration(int blocks, cudaStream_t stream, cudaLaunchAttribute *attribute) {
  cudaLaunchConfig_t made = {};
  made.gridDim = dim3(blocks), made.blockDim = dim3(64), made.stream = stream, made.attrs = attribute, made.numAttrs = 1;
  return made;
}

int main() {
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  if (!device.cooperativeLaunch || device.major < 9) {
    fprintf(stderr, "this device has no clusters\n");
    return 77;
  }
  int *sums, got[8], n = 8 * 64;
  cudaStream_t stream;
  struct expect e = {0, 0, 0, 0, 0, 0, 0};
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMalloc(&sums, sizeof got));
  CHECK(cudaMemsetAsync(sums, 0, sizeof got, stream)), e.memsets++;
  void *arguments[] = {&sums, &n};
  for (int i = 0; i < 10; i++) CHECK(cudaLaunchCooperativeKernel(cooperative, dim3(8), dim3(64), arguments, 0, stream)), e.launches++;
  cudaLaunchAttribute cluster = {}, early = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = 4, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t by_attribute = configuration(8, stream, &cluster);
  for (int i = 0; i < 10; i++) CHECK(cudaLaunchKernelEx(&by_attribute, clustered, sums)), e.launches++;
  for (int i = 0; i < 10; i++) declared<<<8, 64, 0, stream>>>(sums), e.launches++;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t dependents = configuration(1, stream, &early);
  for (int i = 0; i < 10; i++) CHECK(cudaLaunchKernelEx(&dependents, dependent, sums)), e.launches++;
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpyAsync(got, sums, sizeof got, cudaMemcpyDeviceToHost, stream)), e.copies++;
  CHECK(cudaStreamSynchronize(stream));
  printf("sums %d %d %d %d %d\n", got[0], got[1], got[2], got[3], got[4]);
  e.kernel_calls = e.launches;
  print_expect(&e);
  return got[1] == 10 && got[2] == 80 && got[3] == 80 && got[4] == 10 ? 0 : 4;
}
