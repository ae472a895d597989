// What CUPTI delivers, and when, by how large its buffers are; without gputrace. Kernels are queued at one go, and a flush comes
// every 50 ms, as the tracer's does: cupti_buffers LIBRARY RECORDS KERNEL_US KERNELS BYTES [graphs] (RECORDS 0: as many as fit; with
// `graphs` they are launched twenty at a time, and timed as whole graphs). After each flush the buffers that CUPTI has not given
// back are read: how many records were there before they were delivered (early), how old the newest of them was at most
// (early_lag_ms), and how many CUPTI changed or moved afterwards (changed).
#include <cupti.h>
#include <cuda_runtime.h>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <time.h>
#include <vector>

// Any version may be asked, whatever it is linked as.
#define CUPTI(use) use(RegisterCallbacks) use(Enable) use(FlushAll) use(GetNextRecord)
#define DECLARE(name) static decltype(&cuptiActivity##name) name;
CUPTI(DECLARE)
static decltype(&cuptiGetTimestamp) GetTimestamp;

static const size_t MOST_BYTES = 1 << 20;
// All that CUPTI 11.8 writes of a kernel, and less than what any writes of a graph.
static const size_t KERNEL_BYTES = 136, GRAPH_BYTES = 40;
static const int NODES = 20;

typedef std::pair<size_t, std::string> Record;  // Its place in the buffer, and what it says.

static size_t most_records, bytes;
static std::mutex lock;
static std::vector<uint8_t *> spare;
static std::map<uint8_t *, std::vector<Record>> held;
static long buffers, records, early, changed;
static double worst_ms, early_ms;

template <typename T> static T found(void *library, const char *name) {
  T function = (T)dlsym(library, name);
  if (!function) exit((fprintf(stderr, "no %s\n", name), 3));
  return function;
}

static uint64_t end_of(const CUpti_Activity *record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return ((const CUpti_ActivityKernel9 *)record)->end;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: return ((const CUpti_ActivityGraphTrace *)record)->end;
    default: return 0;
  }
}

static Record read(const uint8_t *buffer, const CUpti_Activity *record) {
  const size_t length = record->kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE ? GRAPH_BYTES : KERNEL_BYTES;
  return {(const uint8_t *)record - buffer, std::string((const char *)record, length)};
}

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
  std::lock_guard<std::mutex> one(lock);
  if (spare.empty()) {
    *buffer = (uint8_t *)aligned_alloc(4096, MOST_BYTES);
    memset(*buffer, 0, MOST_BYTES);
  } else {
    *buffer = spare.back();
    spare.pop_back();
  }
  held[*buffer] = {};
  *size = bytes;
  *most = most_records;
}

static void completed(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
  CUpti_Activity *record = nullptr;
  uint64_t first_end = 0, now;
  GetTimestamp(&now);
  std::lock_guard<std::mutex> one(lock);
  const std::vector<Record> &seen = held[buffer];
  size_t index = 0;
  while (GetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    const uint64_t end = end_of(record);
    records++;
    if (end && (!first_end || end < first_end)) first_end = end;
    if (index < seen.size() && seen[index] != read(buffer, record)) changed++;
    index++;
  }
  if (index < seen.size()) changed += seen.size() - index;
  buffers++;
  early += seen.size();
  if (first_end && (now - first_end) / 1e6 > worst_ms) worst_ms = (now - first_end) / 1e6;
  held.erase(buffer);
  memset(buffer, 0, valid);
  spare.push_back(buffer);
}

// What is there of buffers that were not given back: a record that another one stands behind.
static void look(void) {
  std::lock_guard<std::mutex> one(lock);
  uint64_t now;
  GetTimestamp(&now);
  for (auto &each : held) {
    CUpti_Activity *record = nullptr, *before = nullptr;
    for (size_t index = 0; GetNextRecord(each.first, bytes, &record) == CUPTI_SUCCESS && record->kind; before = record) {
      if (!before || index++ < each.second.size()) continue;
      const double age_ms = ((double)now - (double)end_of(before)) / 1e6;
      if (age_ms > early_ms) early_ms = age_ms;
      each.second.push_back(read(each.first, before));
    }
  }
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
  if (count != 6 && count != 7) return 2;
  void *library = dlopen(arguments[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 3;
#define FIND(name) name = found<decltype(name)>(library, "cuptiActivity" #name);
  CUPTI(FIND)
  GetTimestamp = found<decltype(GetTimestamp)>(library, "cuptiGetTimestamp");
  most_records = atol(arguments[2]);
  const long kernel_us = atol(arguments[3]), kernels = atol(arguments[4]);
  bytes = atol(arguments[5]);
  const bool graphs = count == 7;
  if (bytes > MOST_BYTES) return 2;
  RegisterCallbacks(requested, completed);
  if (graphs) Enable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cudaFree(0);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t all;
  cudaStreamCreate(&stream);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  for (int i = 0; i < NODES; i++) spin<<<1, 1, 0, stream>>>(kernel_us * 1000);
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&all, graph, 0);
  std::atomic<bool> is_over{false};
  std::thread flusher([&] {
    while (!is_over) {
      nap(50);
      FlushAll(0);
      look();
    }
  });
  const double begun = now_ns();
  for (long i = 0; i < kernels; i += graphs ? NODES : 1) {
    if (graphs)
      cudaGraphLaunch(all, stream);
    else
      spin<<<1, 1>>>(kernel_us * 1000);
  }
  const double launch_ns = (now_ns() - begun) / kernels;
  cudaDeviceSynchronize();
  nap(200);
  is_over = true;
  flusher.join();
  FlushAll(1);
  const long expected = graphs ? (kernels + NODES - 1) / NODES : kernels;
  printf("%srecords=%zu bytes=%zu kernel_us=%ld kernels=%ld launch_ns=%.0f buffers=%ld delivered=%ld lag_ms=%.0f early=%ld early_lag_ms=%.0f changed=%ld\n",
         graphs ? "graphs " : "", most_records, bytes, kernel_us, kernels, launch_ns, buffers, records, worst_ms, early, early_ms, changed);
  return records == expected && !changed ? 0 : 1;
}
