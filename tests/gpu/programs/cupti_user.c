// A program that profiles itself with CUPTI, as a test of what a tracer leaves of CUPTI for it.
// cupti_user SCENARIO first|later: `first` subscribes before cuInit, `later` after kernels have run.
// Stdout is what must be equal traced and untraced; what may differ within bounds goes to stderr as INFO.
// With -DLIBRARY it is a library for cupti_library_host.c.
#define _GNU_SOURCE
#include "cupti_user.h"
#include "driver_min.h"
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum { ROUNDS = 4, PAIRS = 5, CYCLES = 20000, FUNCTIONS = 1024 };
static struct expect done;
static uint64_t external_id = 1000;
static int push_external;

// The CUDA runtime, where there is one: it takes its kernels from nvcc, so only copies, memsets and waits are used.
static int (*runtime_set)(void *, int, size_t), (*runtime_copy)(void *, const void *, size_t, int), (*runtime_wait)(void);
static void load_runtime(void) {
  void *library = getenv("CUPTI_USER_RUNTIME") ? dlopen(getenv("CUPTI_USER_RUNTIME"), RTLD_NOW) : NULL;
  if (!library) return;
  *(void **)&runtime_set = dlsym(library, "cudaMemset");
  *(void **)&runtime_copy = dlsym(library, "cudaMemcpy");
  *(void **)&runtime_wait = dlsym(library, "cudaDeviceSynchronize");
}

static void tagged_launch(driver_handle function, uint64_t cycles) {
  if (push_external) CHECK(cuptiActivityPushExternalCorrelationId(EXTERNAL_CUSTOM0, external_id++));
  launch(function, cycles);
  if (push_external) CHECK(cuptiActivityPopExternalCorrelationId(EXTERNAL_CUSTOM0, NULL));
  done.launches++, done.kernel_calls++;
}

static void work(void) {
  static char host[65536];
  for (int round = 0; round < ROUNDS; round++) {
    CHECK(cuMemcpyHtoD_v2(device_data, host, sizeof host)), done.copies++;
    CHECK(cuMemsetD32_v2(device_data, 7, 1024)), done.memsets++;
    for (int i = 0; i < PAIRS; i++) {
      tagged_launch(tick_function, CYCLES);
      tagged_launch(tock_function, CYCLES);
      tagged_launch(tick_function, CYCLES);
    }
    if (runtime_set) {
      CHECK(runtime_set((void *)(uintptr_t)device_data, 1, 4096)), done.memsets++;
      CHECK(runtime_copy((void *)(uintptr_t)device_data, host, 8192, 1)), done.copies++;
      CHECK(runtime_wait());
    }
    CHECK(cuCtxSynchronize());
  }
}

// Callbacks.

static int enters[3][FUNCTIONS], exits[3][FUNCTIONS], failed_calls, other_domains, other_threads, finalize_now;
static const char *names[3][FUNCTIONS];
static pid_t main_thread;
static void *subscriber;

static void called(void *data, uint32_t domain, uint32_t number, const callback_data *call) {
  int *counter = (int *)data;
  ++*counter;
  if (domain != DOMAIN_DRIVER_API && domain != DOMAIN_RUNTIME_API) { other_domains++; return; }
  if (gettid() != main_thread) { other_threads++; return; }
  if (number >= FUNCTIONS) return;
  names[domain][number] = call->function_name;
  (call->site == SITE_ENTER ? enters : exits)[domain][number]++;
  if (call->site == SITE_EXIT && call->return_value && *(int *)call->return_value) failed_calls++;
  if (finalize_now && call->site == SITE_EXIT && domain == DOMAIN_DRIVER_API && number == CBID_CTX_SYNCHRONIZE) {
    finalize_now = 0;
    printf("cuptiFinalize %d\n", cuptiFinalize());
  }
}

static void print_callbacks(const char *phase) {
  printf("callbacks %s: failed %d, other domains %d, other threads %d\n", phase, failed_calls, other_domains, other_threads);
  for (int domain = 1; domain < 3; domain++)
    for (int i = 0; i < FUNCTIONS; i++)
      if (enters[domain][i] || exits[domain][i])
        printf("  %s %s enter %d exit %d\n", domain == 1 ? "driver" : "runtime", names[domain][i] ? names[domain][i] : "?", enters[domain][i], exits[domain][i]);
  memset(enters, 0, sizeof enters);
  memset(exits, 0, sizeof exits);
  failed_calls = other_domains = other_threads = 0;
}

static int by_second_interface;
static int subscribe(int *counter) {
  // Newer clients subscribe by this one, which older libraries lack.
  int (*second)(void **, callback_function, void *, void *) = (int (*)(void **, callback_function, void *, void *))dlsym(cupti_library, "cuptiSubscribe_v2");
  if (by_second_interface) return second ? second(&subscriber, called, counter, NULL) : -1;
  return cuptiSubscribe(&subscriber, called, counter);
}
static void enable_domains(int on) {
  printf("enable %d: driver %d runtime %d\n", on, cuptiEnableDomain((uint32_t)on, subscriber, DOMAIN_DRIVER_API), cuptiEnableDomain((uint32_t)on, subscriber, DOMAIN_RUNTIME_API));
}

// Activity records.

static int kernel_kind = KIND_CONCURRENT_KERNEL;
static const int other_kinds[] = {KIND_MEMCPY, KIND_MEMSET, KIND_DRIVER, KIND_RUNTIME, KIND_EXTERNAL_CORRELATION, KIND_SYNCHRONIZATION, KIND_OVERHEAD};
enum { OTHER_KINDS = sizeof other_kinds / sizeof *other_kinds };

static void switch_kinds(int on) {
  int (*const change)(int) = on ? cuptiActivityEnable : cuptiActivityDisable;
  printf("kinds %s: %d:%d", on ? "on" : "off", kernel_kind, change(kernel_kind));
  for (int i = 0; i < OTHER_KINDS; i++) printf(" %d:%d", other_kinds[i], change(other_kinds[i]));
  printf("\n");
}

static int by_start(const void *a, const void *b) {
  uint64_t x = ((const record *)a)->start, y = ((const record *)b)->start;
  return x < y ? -1 : x > y;
}

static void print_numbers(const char *label, int kind) {
  int numbers[FUNCTIONS] = {0};
  for (int i = 0; i < record_count; i++)
    if (records[i].kind == kind) numbers[records[i].detail & (FUNCTIONS - 1)]++;
  printf("  %s", label);
  for (int i = 0; i < FUNCTIONS; i++)
    if (numbers[i]) printf(" %d=%d", i, numbers[i]);
  printf("\n");
}

// How many there were, as far as two runs can be expected to agree.
static const char *amount(int number, int all) { return !number ? "none" : number * 4 <= all ? "some" : "most"; }

// Device clocks are fitted to the host's, so a kernel may seem to start a little before its call.
static const uint64_t before_ns = 50000;

static void print_records(const char *phase) {
  printf("flush %s: %d\n", phase, cuptiActivityFlushAll(1));
  pthread_mutex_lock(&records_lock);
  int kernels = 0, ticks = 0, tocks = 0, launched = 0, early = 0, tagged = 0, bad = 0;
  uint64_t copied = 0, set = 0, tags = 0;
  for (int i = 0; i < record_count; i++) {
    const record *r = &records[i];
    if (r->kind == KIND_MEMCPY) copied += r->id;
    if (r->kind == KIND_MEMSET) set += r->id;
    if (r->kind == KIND_EXTERNAL_CORRELATION) tags += r->id;
    if ((r->kind == KIND_MEMCPY || r->kind == KIND_MEMSET || r->name) && (!r->start || !r->end || r->end < r->start)) bad++;
    if (!r->name) continue;
    kernels++, ticks += !strcmp(r->name, "tick"), tocks += !strcmp(r->name, "tock");
    const record *call = find_record(KIND_DRIVER, r->correlation), *tag = find_record(KIND_EXTERNAL_CORRELATION, r->correlation);
    if (call && call->detail == CBID_LAUNCH) launched++, early += r->start + before_ns < call->start;
    if (tag && tag->detail == EXTERNAL_CUSTOM0) tagged++;
  }
  printf("records %s: kernels %d of kind %d (tick %d tock %d), bad times %d, unknown buffers %d, dropped %zu\n", phase, kernels, kernel_kind, ticks, tocks, bad, unknown_buffers, dropped_records);
  printf("  launched by cuLaunchKernel %d, before their call %s, with an external id %d (sum %llu), bytes copied %llu set %llu\n", launched, amount(early, kernels), tagged, (unsigned long long)tags, (unsigned long long)copied, (unsigned long long)set);
  print_numbers("copies by direction", KIND_MEMCPY);
  print_numbers("driver calls", KIND_DRIVER);
  print_numbers("runtime calls", KIND_RUNTIME);
  print_numbers("waits by type", KIND_SYNCHRONIZATION);
  int overheads = 0;
  uint64_t total = 0;
  for (int i = 0; i < record_count; i++) overheads += records[i].kind == KIND_OVERHEAD, total += records[i].name ? records[i].end - records[i].start : 0;
  fprintf(stderr, "INFO %s overhead_records=%d kernel_time=%llu\n", phase, overheads, (unsigned long long)total);
  pthread_mutex_unlock(&records_lock);
  forget_records();
}

// Clocks: CLOCK_REALTIME, a clock of another rate, and none of one's own.

static uint64_t realtime(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
#if defined(__x86_64__)
static uint64_t ticks(void) { return __rdtsc(); }
#else
static uint64_t ticks(void) { return realtime() * 3; }
#endif
static uint64_t cupti_clock(void) {
  uint64_t now = 0;
  cuptiGetTimestamp(&now);
  return now;
}

static void check_clock(const char *name, uint64_t (*clock)(void), int registered) {
  enum { TIMED = 20 };
  uint64_t before[TIMED], after[TIMED], rate_start = clock(), wall_start = realtime();
  for (int i = 0; i < TIMED; i++) {
    usleep(2000);
    before[i] = clock();
    tagged_launch(i % 2 ? tock_function : tick_function, CYCLES);
    CHECK(cuCtxSynchronize());
    after[i] = clock();
  }
  double rate = (double)(clock() - rate_start) / (double)(realtime() - wall_start);
  uint64_t client = clock(), cupti = cupti_clock(), later = clock();
  uint64_t slack = (uint64_t)(200000 * rate);
  int follows = cupti + slack >= client && cupti <= later + slack;
  printf("clock %s: flush %d", name, cuptiActivityFlushAll(1));
  pthread_mutex_lock(&records_lock);
  qsort(records, (size_t)record_count, sizeof *records, by_start);
  int seen = 0, outside = 0, calls = 0, calls_outside = 0;
  double worst_early = 0, worst_late = 0, total = 0;
  for (int i = 0; i < record_count; i++) {
    const record *r = &records[i];
    if (r->kind == KIND_DRIVER && r->detail == CBID_LAUNCH && calls < TIMED) {
      calls_outside += r->start + slack < before[calls] || r->end > after[calls] + slack, calls++;
    }
    if (!r->name || seen >= TIMED) continue;
    double early = (double)before[seen] - (double)r->start, late = (double)r->end - (double)after[seen];
    if (early > worst_early) worst_early = early;
    if (late > worst_late) worst_late = late;
    outside += early > (double)slack || late > (double)slack, seen++, total += (double)(r->end - r->start);
  }
  pthread_mutex_unlock(&records_lock);
  printf(" kernels %d outside their window %s, calls %d outside %s, cuptiGetTimestamp is in the %s clock: %s\n", seen, amount(outside, TIMED), calls, amount(calls_outside, TIMED), registered ? "registered" : "records'", follows ? "yes" : "no");
  fprintf(stderr, "INFO clock %s rate=%.4f worst_early_ns=%.0f worst_late_ns=%.0f kernel_mean_ns=%.0f cupti_minus_client=%.0f outside=%d calls_outside=%d\n", name, rate, worst_early / rate, worst_late / rate, total / rate / (seen ? seen : 1), (double)cupti - (double)client, outside, calls_outside);
  forget_records();
}

// Scenarios.

static int calls_seen, calls_seen_again;

static void activity(void) {
  printf("register %d\n", cuptiActivityRegisterCallbacks((void *)buffer_requested, (void *)buffer_completed));
  switch_kinds(1);
}

static void begin(const char *scenario) {
  by_second_interface = !strcmp(scenario, "v2");
  if (by_second_interface || !strcmp(scenario, "callbacks") || !strcmp(scenario, "again") || !strcmp(scenario, "second") || !strcmp(scenario, "finalize")) {
    printf("subscribe %d\n", subscribe(&calls_seen));
    enable_domains(1);
  }
  if (!strcmp(scenario, "kernel")) kernel_kind = KIND_KERNEL;
  if (!strcmp(scenario, "realtime")) printf("clock callback %d\n", cuptiActivityRegisterTimestampCallback((void *)realtime));
  if (!strcmp(scenario, "ticks")) printf("clock callback %d\n", cuptiActivityRegisterTimestampCallback((void *)ticks));
  if (strcmp(scenario, "callbacks")) activity();
}

static void wait_for_period(void) {
  int want = ROUNDS * PAIRS * 3, waited = 0;
  printf("flush period %d\n", cuptiActivityFlushPeriod(20));
  work();
  for (; waited < 500 && count_records(kernel_kind) < want; waited++) usleep(10000);
  printf("delivered by the period: %s; period off %d\n", count_records(kernel_kind) >= want ? "all" : "not all", cuptiActivityFlushPeriod(0));
  fprintf(stderr, "INFO period waited_ms=%d records=%d of %d\n", waited * 10, count_records(kernel_kind), want);
}

static void second_client(void) {
  void *other = NULL;
  printf("second subscriber %d\n", cuptiSubscribe(&other, called, &calls_seen_again));
  work();
  printf("the first still sees calls: %s, the second: %s\n", calls_seen ? "yes" : "no", calls_seen_again ? "yes" : "no");
  printf("unsubscribe %d\n", cuptiUnsubscribe(subscriber));
  calls_seen = calls_seen_again = 0;
  work();
  printf("after unsubscribing: %d\n", calls_seen);
  printf("then the second %d\n", cuptiSubscribe(&subscriber, called, &calls_seen_again));
  enable_domains(1);
  work();
  printf("it sees calls: %s\n", calls_seen_again ? "yes" : "no");
}

static void again(void) {
  for (int turn = 1; turn <= 3; turn++) {
    work();
    print_callbacks("on");
    print_records("on");
    enable_domains(0);
    switch_kinds(0);
    printf("unsubscribe %d\n", cuptiUnsubscribe(subscriber));
    work();
    print_callbacks("off");
    print_records("off");
    printf("subscribe %d\n", subscribe(&calls_seen));
    enable_domains(1);
    switch_kinds(1);
  }
}

static void finalize(void) {
  work();
  printf("flush %d\n", cuptiActivityFlushAll(1));
  printf("kernels before: %d\n", count_records(kernel_kind));
  forget_records();
  finalize_now = 1;
  CHECK(cuCtxSynchronize());
  if (finalize_now) printf("cuptiFinalize was not reached\n");
  work();
  printf("kernels while ended: %d\n", count_records(kernel_kind));
  printf("subscribe again %d\n", subscribe(&calls_seen));
  enable_domains(1);
  activity();
  work();
  printf("flush %d\n", cuptiActivityFlushAll(1));
  printf("kernels after: %d\n", count_records(kernel_kind));
}

#ifdef LIBRARY
#define main cupti_user_main
#endif
int main(int argc, char **argv) {
  if (argc < 3) return 3;
  const char *scenario = argv[1];
  setvbuf(stdout, NULL, _IOLBF, 0);
  main_thread = gettid();
  load_driver();
  load_runtime();
  int later = !strcmp(argv[2], "later");
  if (later) {
    start_device();
    work();
  }
  bind_cupti();
  begin(scenario);
  if (!later) start_device();
  if (!strcmp(scenario, "callbacks")) {
    print_callbacks("start");
    work();
    print_callbacks("work");
  } else if (!strcmp(scenario, "activity") || !strcmp(scenario, "kernel")) {
    print_records("start");
    push_external = 1;
    work();
    push_external = 0;
    print_records("work");
    wait_for_period();
    print_records("period");
  } else if (!strcmp(scenario, "realtime")) {
    work();
    print_records("work");
    check_clock("realtime", realtime, 1);
  } else if (!strcmp(scenario, "ticks")) {
    work();
    printf("flush %d\n", cuptiActivityFlushAll(1));
    forget_records();
    check_clock("ticks", ticks, 1);
  } else if (!strcmp(scenario, "plain")) {
    work();
    printf("flush %d\n", cuptiActivityFlushAll(1));
    forget_records();
    check_clock("plain", cupti_clock, 0);
  } else if (!strcmp(scenario, "v2")) {
    work();
    print_callbacks("work");
    print_records("work");
  } else if (!strcmp(scenario, "again")) {
    again();
  } else if (!strcmp(scenario, "second")) {
    second_client();
  } else if (!strcmp(scenario, "finalize")) {
    finalize();
  } else {
    return 3;
  }
  work();
  CHECK(cuCtxSynchronize());
  fprintf(stderr, "INFO libcupti %s\n", cupti_path);
  print_expect(&done);
  return 0;
}
