// What CUPTI delivers, and when, by how large its buffers are; without gputrace. Kernels are queued at one go, and a flush comes
// every 50 ms, as the tracer's does: cupti_buffers LIBRARY RECORDS KERNEL_US KERNELS BYTES [HOW] (RECORDS 0: as many as fit). HOW says
// how they are launched: `nodes` twenty at a time, as graphs, `graphs` likewise and timed as a whole, `mixed` on two streams, with a
// copy and a fill after each, and a forced flush in the middle. After each flush the buffers that CUPTI has not given back are
// read as the tracer does: how many records were there before they were delivered (early), how old they were then at most
// (early_lag_ms), and how many CUPTI changed in any byte, or moved, afterwards (changed).
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
static const int NODES = 20;

typedef std::pair<size_t, std::string> Record;  // Its place in the buffer, and all that it says.
struct Held {
  std::vector<Record> seen;
  CUpti_Activity *newest;  // The last one at the last look, if what it is of has ended.
};

static size_t most_records, bytes;
static std::mutex lock;
static std::vector<uint8_t *> spare;
static std::map<uint8_t *, Held> held;
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
    case CUPTI_ACTIVITY_KIND_MEMCPY: return ((const CUpti_ActivityMemcpy5 *)record)->end;
    case CUPTI_ACTIVITY_KIND_MEMSET: return ((const CUpti_ActivityMemset4 *)record)->end;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: return ((const CUpti_ActivityGraphTrace *)record)->end;
    default: return 0;
  }
}

// So long are all records of a kind, in this version; 0 until two of them stood one behind the other.
static size_t lengths[64];

static Record read(const uint8_t *buffer, const CUpti_Activity *record) {
  return {(const uint8_t *)record - buffer, std::string((const char *)record, lengths[record->kind & 63])};
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
  const std::vector<Record> &seen = held[buffer].seen;
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
    std::vector<Record> &seen = each.second.seen;
    size_t index = 0;
    const auto tell = [&](const CUpti_Activity *whole) {
      if (index++ < seen.size()) return true;
      if (!end_of(whole)) return false;
      const double age_ms = ((double)now - (double)end_of(whole)) / 1e6;
      if (age_ms > early_ms) early_ms = age_ms;
      seen.push_back(read(each.first, whole));
      return true;
    };
    bool goes_on = true;
    for (; goes_on && GetNextRecord(each.first, bytes, &record) == CUPTI_SUCCESS && record->kind; before = record) {
      if (!before) continue;
      lengths[before->kind & 63] = (uint8_t *)record - (uint8_t *)before;
      goes_on = tell(before);
    }
    if (goes_on && before && before == each.second.newest && lengths[before->kind & 63]) tell(before);
    each.second.newest = goes_on && before && end_of(before) ? before : nullptr;
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
  const std::string how = count == 7 ? arguments[6] : "";
  const bool graphs = how == "graphs", nodes = graphs || how == "nodes", mixed = how == "mixed";
  if (bytes > MOST_BYTES) return 2;
  RegisterCallbacks(requested, completed);
  if (graphs) Enable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  Enable(CUPTI_ACTIVITY_KIND_MEMCPY);
  Enable(CUPTI_ACTIVITY_KIND_MEMSET);
  cudaFree(0);
  char *on_device, *pinned;
  cudaMalloc(&on_device, 4096);
  cudaMallocHost(&pinned, 4096);
  cudaStream_t stream, other;
  cudaStreamCreate(&other);
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
  for (long i = 0; i < kernels; i += nodes ? NODES : 1) {
    if (nodes) {
      cudaGraphLaunch(all, stream);
    } else if (mixed) {
      spin<<<1, 1, 0, i % 2 ? stream : other>>>(kernel_us * 1000);
      cudaMemcpyAsync(on_device, pinned, 4096, cudaMemcpyHostToDevice, stream);
      cudaMemsetAsync(on_device, 1, 4096, other);
      if (i == kernels / 2) FlushAll(1);
    } else {
      spin<<<1, 1>>>(kernel_us * 1000);
    }
  }
  const double launch_ns = (now_ns() - begun) / kernels;
  cudaDeviceSynchronize();
  nap(200);
  is_over = true;
  flusher.join();
  FlushAll(1);
  const long launches = nodes ? (kernels + NODES - 1) / NODES : kernels;
  const long expected = graphs ? launches : nodes ? launches * NODES : mixed ? 3 * kernels : kernels;
  printf("%s%srecords=%zu bytes=%zu kernel_us=%ld kernels=%ld launch_ns=%.0f buffers=%ld delivered=%ld lag_ms=%.0f early=%ld early_lag_ms=%.0f changed=%ld\n",
         how.c_str(), how.empty() ? "" : " ", most_records, bytes, kernel_us, kernels, launch_ns, buffers, records, worst_ms, early, early_ms, changed);
  return records == expected && !changed ? 0 : 1;
}
