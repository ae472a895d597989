// Flushes CUPTI while threads launch, copy and fill, without gputrace: cupti_flush LIBRARY HOW THREADS SECONDS
//   HOW  - nobody flushes, f a thread does every 3 ms, h the same while no call is under way, for which new ones
//        wait, p CUPTI itself by its flush period of 3 ms; with b behind it each thread has buffers of its own,
//        with g it replays a graph too
// Prints how many calls, flushes and records there were, and the us of a flush (mean/most). A crash is CUPTI's.
#include <cupti.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <string>
#include <thread>
#include <time.h>
#include <vector>

#define CUPTI(use) use(ActivityRegisterCallbacks) use(ActivityEnable) use(ActivityFlushAll) use(ActivityFlushPeriod) use(ActivityGetNextRecord) use(ActivitySetAttribute) use(Subscribe) use(EnableCallback)
#define DECLARE(name) static decltype(&cupti##name) name;
CUPTI(DECLARE)

#define MUST(call)                                                                         \
  do {                                                                                     \
    int error = (int)(call);                                                               \
    if (error) exit((fprintf(stderr, "line %d: error %d\n", __LINE__, error), 4));         \
  } while (0)

static const size_t BYTES = 1 << 20;
static const int THREADS_MOST = 64;
static std::mutex lock;
static std::vector<uint8_t *> spare;
static std::atomic<long> calls, records;
static std::atomic<bool> is_over{false}, is_held{false};
static struct alignas(64) {
  std::atomic<bool> now{false};
} under_way[THREADS_MOST];
static thread_local int self;

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
  std::lock_guard<std::mutex> one(lock);
  if (spare.empty()) {
    *buffer = (uint8_t *)aligned_alloc(4096, BYTES);
  } else {
    *buffer = spare.back();
    spare.pop_back();
  }
  *size = BYTES;
  *most = 0;
}

static void completed(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t valid) {
  CUpti_Activity *record = nullptr;
  while (valid && ActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) records++;
  std::lock_guard<std::mutex> one(lock);
  spare.push_back(buffer);
}

static void on_call(void *, CUpti_CallbackDomain, CUpti_CallbackId, const void *) {}

// A call of the driver's: while they are held it waits before it begins.
struct Call {
  Call() {
    while (under_way[self].now = true, is_held) {
      under_way[self].now = false;
      while (is_held) std::this_thread::yield();
    }
  }
  ~Call() {
    under_way[self].now = false;
    calls++;
  }
};

static double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void nap_ms(double ms) {
  timespec t = {(time_t)(ms / 1e3), (long)(ms * 1e6) % 1000000000};
  nanosleep(&t, nullptr);
}

__global__ void touch(int *value) { *value += 1; }

static void work(int number, bool has_graph) {
  self = number;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t all = nullptr;
  int *on_device, *pinned;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST(cudaMalloc(&on_device, 4096));
  MUST(cudaMallocHost(&pinned, 4096));
  if (has_graph) {
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 4; i++) touch<<<1, 1, 0, stream>>>(on_device);
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&all, graph, 0));
  }
  for (long round = 0; !is_over; round++) {
    for (int i = 0; i < 10; i++) {
      Call call;
      touch<<<1, 1, 0, stream>>>(on_device);
    }
    {
      Call call;
      MUST(cudaMemcpyAsync(on_device, pinned, 4096, cudaMemcpyHostToDevice, stream));
    }
    {
      Call call;
      MUST(cudaMemsetAsync(on_device, 1, 4096, stream));
    }
    if (has_graph) {
      Call call;
      MUST(cudaGraphLaunch(all, stream));
    }
    if (round % 4 == 3) MUST(cudaStreamSynchronize(stream));
  }
  MUST(cudaStreamSynchronize(stream));
}

int main(int count, char **arguments) {
  if (count != 5) return 2;
  void *library = dlopen(arguments[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 3;
#define FIND(name)                                                          \
  name = (decltype(name))dlsym(library, "cupti" #name);                     \
  if (!name) return fprintf(stderr, "no cupti%s\n", #name), 3;
  CUPTI(FIND)
  const std::string how = arguments[2];
  const int threads = atoi(arguments[3]);
  const double seconds = atof(arguments[4]);
  const auto has = [&](char letter) { return how.find(letter) != std::string::npos; };
  if (threads < 1 || threads > THREADS_MOST) return 2;
  MUST(cudaSetDevice(0));
  CUpti_SubscriberHandle subscriber;
  MUST(Subscribe(&subscriber, (CUpti_CallbackFunc)on_call, nullptr));
  EnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  EnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch);
  if (has('b')) {
    uint8_t yes = 1;
    size_t bytes = sizeof yes;
    MUST(ActivitySetAttribute(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, &bytes, &yes));
  }
  MUST(ActivityRegisterCallbacks(requested, completed));
  for (auto kind : {CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL}) MUST(ActivityEnable(kind));
  if (has('p')) MUST(ActivityFlushPeriod(3));
  MUST(cudaFree(0));
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; i++) workers.emplace_back(work, i, has('g'));
  long flushes = 0;
  double all_us = 0, most_us = 0;
  const double end_us = now_us() + seconds * 1e6;
  while (now_us() < end_us) {
    nap_ms(3);
    if (!has('f') && !has('h')) continue;
    is_held = has('h');
    for (auto &each : under_way)
      while (is_held && each.now) std::this_thread::yield();
    const double begun_us = now_us();
    ActivityFlushAll(0);
    const double took_us = now_us() - begun_us;
    is_held = false;
    flushes++;
    all_us += took_us;
    if (took_us > most_us) most_us = took_us;
  }
  is_over = true;
  for (auto &each : workers) each.join();
  MUST(cudaDeviceSynchronize());
  ActivityFlushAll(1);
  printf("calls=%ld flushes=%ld records=%ld flush_us=%.0f/%.0f\n", (long)calls, flushes, (long)records, flushes ? all_us / flushes : 0, most_us);
  return 0;
}
