// An allocator for PyTorch as RMM is one: memory from a pool of the device, in the order of the stream.
#include <cuda_runtime.h>
#include <sys/types.h>

extern "C" void *take(ssize_t size, int device, cudaStream_t stream) {
  void *pointer = nullptr;
  if (size == 0 || cudaSetDevice(device) != cudaSuccess) return nullptr;
  return cudaMallocAsync(&pointer, size, stream) == cudaSuccess ? pointer : nullptr;
}

extern "C" void give_back(void *pointer, ssize_t, int, cudaStream_t stream) {
  if (pointer) cudaFreeAsync(pointer, stream);
}
