// What CUPTI delivers, and when, by how large its buffers are; without gputrace. Kernels are queued at one go, and a flush comes
// every 50 ms, as the tracer's does: cupti_buffers RECORDS KERNEL_US KERNELS BYTES [EVERY] (RECORDS 0: as many as fit). With EVERY
// the launching thread flushes after so many launches too: whether that closes a buffer whose kernels have not ended.
#include <cupti.h>
#include <cuda_runtime.h>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <time.h>
#include <vector>

static const size_t MOST_BYTES = 1 << 20;
static size_t most_records, bytes;
static std::mutex lock;
static std::vector<uint8_t *> spare;
static long buffers, records;
static double worst_ms;

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
  std::lock_guard<std::mutex> held(lock);
  if (spare.empty()) {
    *buffer = (uint8_t *)aligned_alloc(4096, MOST_BYTES);
  } else {
    *buffer = spare.back();
    spare.pop_back();
  }
  *size = bytes;
  *most = most_records;
}

static void completed(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
  CUpti_Activity *record = nullptr;
  uint64_t first_end = 0, now;
  long count = 0;
  cuptiGetTimestamp(&now);
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const uint64_t end = ((CUpti_ActivityKernel9 *)record)->end;
    count++;
    if (end && (!first_end || end < first_end)) first_end = end;
  }
  std::lock_guard<std::mutex> held(lock);
  buffers++;
  records += count;
  if (first_end && (now - first_end) / 1e6 > worst_ms) worst_ms = (now - first_end) / 1e6;
  spare.push_back(buffer);
}

__global__ void spin(long long ns) {
  long long begun, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begun < ns);
}

static double now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

static void nap(long ms) {
  timespec t = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&t, nullptr);
}

int main(int count, char **arguments) {
  if (count != 5 && count != 6) return 2;
  most_records = atol(arguments[1]);
  const long kernel_us = atol(arguments[2]), kernels = atol(arguments[3]);
  bytes = atol(arguments[4]);
  const long every = count == 6 ? atol(arguments[5]) : kernels + 1;
  if (bytes > MOST_BYTES || every < 1) return 2;
  cuptiActivityRegisterCallbacks(requested, completed);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cudaFree(0);
  std::atomic<bool> is_over{false};
  std::thread flusher([&] {
    while (!is_over) {
      nap(50);
      cuptiActivityFlushAll(0);
    }
  });
  const double begun = now_ns();
  for (long i = 1; i <= kernels; i++) {
    spin<<<1, 1>>>(kernel_us * 1000);
    if (i % every == 0) cuptiActivityFlushAll(0);
  }
  const double launch_ns = (now_ns() - begun) / kernels;
  cudaDeviceSynchronize();
  nap(200);
  is_over = true;
  flusher.join();
  cuptiActivityFlushAll(1);
  printf("records=%zu bytes=%zu every=%ld kernel_us=%ld kernels=%ld launch_ns=%.0f buffers=%ld delivered=%ld lag_ms=%.0f\n", most_records, bytes, count == 6 ? every : 0, kernel_us, kernels, launch_ns, buffers, records, worst_ms);
  return records == kernels ? 0 : 1;
}
