// Which activity kinds can be switched while a program goes on, without gputrace: a bare CUPTI client turns kinds off and on from a thread
// of its own while threads launch. cupti_switch LIBRARY KINDS WORK HOW SECONDS THREADS GAP_US
//   KINDS  the kinds that are switched: k kernels, c copies, p peer copies, s fills, g whole graphs, n none; the first four are on at first
//   WORK   what each thread does in turn: k kernels, c copies and fills, g a graph of kernels made before, G one with a copy and a fill
//          in it, i a graph that is made, launched three times and destroyed
//   HOW    f a thread that flushes every 5 ms, d a flush before each switch off, e one after it, s a subscriber to launches, g whole graphs
//          on at first, b on only once graphs were made, - nothing
// Prints what it did, how long the switches took, and how many records came. A crash is CUPTI's.
#include <cupti.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <string>
#include <thread>
#include <time.h>
#include <vector>

#define CUPTI(use) use(ActivityRegisterCallbacks) use(ActivityEnable) use(ActivityDisable) use(ActivityFlushAll) use(ActivityGetNextRecord) use(Subscribe) use(EnableCallback)
#define DECLARE(name) static decltype(&cupti##name) name;
CUPTI(DECLARE)

#define MUST(call)                                                                                    \
  do {                                                                                                \
    cudaError_t error = (call);                                                                       \
    if (error) exit((fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorString(error)), 4));      \
  } while (0)

static std::mutex lock;
static std::vector<uint8_t *> spare;
static std::atomic<long> kernels, copies, fills, graphs, endless, launched, copied, filled;
static const size_t BYTES = 1 << 20;

template <typename T> static T found(void *library, const char *name) {
  T function = (T)dlsym(library, name);
  if (!function) exit((fprintf(stderr, "no %s\n", name), 3));
  return function;
}

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
  while (valid && ActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      kernels++;
      if (!((const CUpti_ActivityKernel9 *)record)->end) endless++;
    }
    copies += record->kind == CUPTI_ACTIVITY_KIND_MEMCPY;
    fills += record->kind == CUPTI_ACTIVITY_KIND_MEMSET;
    graphs += record->kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
  }
  std::lock_guard<std::mutex> one(lock);
  spare.push_back(buffer);
}

static void on_launch(void *, CUpti_CallbackDomain, CUpti_CallbackId, const void *) {}

__global__ void touch(int *value) { *value += 1; }

static double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void nap_us(long us) {
  timespec t = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&t, nullptr);
}

struct Graph {
  cudaGraph_t graph;
  cudaGraphExec_t all;
  Graph(cudaStream_t stream, int *on_device, int *pinned, bool mixed) {
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 10; i++) touch<<<1, 1, 0, stream>>>(on_device);
    if (mixed) {
      MUST(cudaMemcpyAsync(on_device, pinned, 4, cudaMemcpyHostToDevice, stream));
      MUST(cudaMemsetAsync(on_device, 0, 4, stream));
    }
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&all, graph, 0));
  }
  ~Graph() {
    cudaGraphExecDestroy(all);
    cudaGraphDestroy(graph);
  }
};

static std::atomic<bool> is_over{false};

static void work(const std::string &kinds_of_work) {
  cudaStream_t stream;
  int *on_device, *pinned;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST(cudaMalloc(&on_device, 4096));
  MUST(cudaMallocHost(&pinned, 4096));
  Graph plain(stream, on_device, pinned, false), mixed(stream, on_device, pinned, true);
  for (long round = 0; !is_over; round++) {
    for (const char each : kinds_of_work) {
      if (each == 'k') {
        for (int i = 0; i < 20; i++) touch<<<1, 1, 0, stream>>>(on_device);
        launched += 20;
      } else if (each == 'c') {
        for (int i = 0; i < 5; i++) {
          MUST(cudaMemcpyAsync(on_device, pinned, 4096, cudaMemcpyHostToDevice, stream));
          MUST(cudaMemsetAsync(on_device, 1, 4096, stream));
        }
        copied += 5, filled += 5;
      } else if (each == 'g' || each == 'G') {
        MUST(cudaGraphLaunch(each == 'g' ? plain.all : mixed.all, stream));
        launched += 10, copied += each == 'G', filled += each == 'G';
      } else if (each == 'i') {
        Graph made(stream, on_device, pinned, true);
        for (int i = 0; i < 3; i++) MUST(cudaGraphLaunch(made.all, stream));
        MUST(cudaStreamSynchronize(stream));
        launched += 30, copied += 3, filled += 3;
      }
    }
    if (round % 8 == 7) MUST(cudaStreamSynchronize(stream));
  }
  MUST(cudaStreamSynchronize(stream));
}

static void print(const char *what, std::vector<double> &took) {
  if (took.empty()) return;
  std::sort(took.begin(), took.end());
  printf(" %s_us=%.1f/%.1f/%.0f", what, took[took.size() / 2], took[took.size() * 99 / 100], took.back());
}

int main(int count, char **arguments) {
  if (count != 8) return 2;
  void *library = dlopen(arguments[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 3;
#define FIND(name) name = found<decltype(name)>(library, "cupti" #name);
  CUPTI(FIND)
  const std::string letters = arguments[2], kinds_of_work = arguments[3], how = arguments[4];
  const double seconds = atof(arguments[5]);
  const int threads = atoi(arguments[6]);
  const long gap_us = atol(arguments[7]);
  const auto has = [&](char letter) { return how.find(letter) != std::string::npos; };
  const std::pair<char, CUpti_ActivityKind> all[] = {{'k', CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL}, {'c', CUPTI_ACTIVITY_KIND_MEMCPY}, {'p', CUPTI_ACTIVITY_KIND_MEMCPY2}, {'s', CUPTI_ACTIVITY_KIND_MEMSET}, {'g', CUPTI_ACTIVITY_KIND_GRAPH_TRACE}};
  MUST(cudaSetDevice(0));
  if (has('s')) {
    CUpti_SubscriberHandle subscriber;
    Subscribe(&subscriber, (CUpti_CallbackFunc)on_launch, nullptr);
    EnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    EnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch);
  }
  ActivityRegisterCallbacks(requested, completed);
  for (auto &each : all)
    if (each.first != 'g' || has('g')) ActivityEnable(each.second);
  MUST(cudaFree(0));
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; i++) workers.emplace_back(work, kinds_of_work);
  std::thread flusher([&] {
    while (has('f') && !is_over) {
      nap_us(5000);
      ActivityFlushAll(0);
    }
  });
  nap_us(300000);
  std::vector<double> off, on;
  long refused = has('b') && ActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE) != CUPTI_SUCCESS;
  const long before = launched;
  const double begun = now_us();
  while (now_us() - begun < seconds * 1e6) {
    nap_us(gap_us);
    if (has('d')) ActivityFlushAll(0);
    double t = now_us();
    for (auto &each : all)
      if (letters.find(each.first) != std::string::npos) refused += ActivityDisable(each.second) != CUPTI_SUCCESS;
    off.push_back(now_us() - t);
    if (has('e')) ActivityFlushAll(0);
    nap_us(gap_us);
    t = now_us();
    for (auto &each : all)
      if (letters.find(each.first) != std::string::npos) refused += ActivityEnable(each.second) != CUPTI_SUCCESS;
    on.push_back(now_us() - t);
  }
  const double rate = (launched - before) / ((now_us() - begun) / 1e6);
  is_over = true;
  for (auto &each : workers) each.join();
  flusher.join();
  MUST(cudaDeviceSynchronize());
  ActivityFlushAll(1);
  printf("switches=%zu refused=%ld launches=%ld kernels=%ld endless=%ld copies=%ld/%ld fills=%ld/%ld graphs=%ld rate=%.0f", 2 * off.size(), refused, (long)launched, (long)kernels, (long)endless, (long)copies,
         (long)copied, (long)fills, (long)filled, (long)graphs, rate);
  print("off", off);
  print("on", on);
  printf("\n");
  return 0;
}
