// Asks the driver for the occupancy of every kernel configuration that a program launches, as the reference for ours.
// Loaded through CUDA_INJECTION64_PATH; a CUPTI callback on the driver's launch functions calls
// cuOccupancyMaxActiveBlocksPerMultiprocessor the first time it sees (function, block, dynamic shared memory) and
// appends one JSON line to OCCUPANCY_OUT. It calls the driver from a callback, which a tracer must not: it is a test.
#define _GNU_SOURCE
#include "cupti_load.h"
#include "cupti_min.h"
#include <pthread.h>

enum { SEEN = 1 << 16, ATTRIBUTE_SHARED = 1, ATTRIBUTE_REGISTERS = 4, DEVICE_THREADS = 39 };
typedef struct { void *function; unsigned grid[3], block[3], shared; } launch_params;
typedef struct { unsigned grid[3], block[3], shared; } launch_config;
typedef struct { const launch_config *config; void *function; } launch_ex_params;
typedef struct { void *function; unsigned block[3], shared; } key;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static key seen[SEEN];
static FILE *out;
static __thread int inside;
static int (*occupancy)(int *, void *, int, size_t);
static int (*function_attribute)(int *, int, void *);
static int (*kernel_attribute)(int *, int, void *, int);
static int (*current_device)(int *);
static int (*device_attribute)(int *, int, int);

// True the first time; the table only has to be large enough for one test program.
static int is_new(const key *k) {
  uint64_t hash = (uintptr_t)k->function * 31 + k->block[0] * 7919u + k->block[1] * 104729u + k->block[2] * 1299709u + k->shared;
  for (unsigned i = 0; i < SEEN; i++) {
    key *slot = &seen[(hash + i) % SEEN];
    if (!slot->function) { *slot = *k; return 1; }
    if (!memcmp(slot, k, sizeof *k)) return 0;
  }
  return 0;
}

static int attribute(int which, void *function) {
  int value = -1, device = 0;
  if (function_attribute(&value, which, function) == 0) return value;
  if (kernel_attribute && current_device(&device) == 0 && kernel_attribute(&value, which, function, device) == 0) return value;
  return -1;
}

static void launched(void *user, int domain, uint32_t id, const callback_data *data) {
  (void)user;
  if (domain != DOMAIN_DRIVER_API || data->site != SITE_ENTER || inside || !data->params) return;
  key k = {0};
  if (id == CBID_LAUNCH_EX || id == CBID_LAUNCH_EX_PTSZ) {
    const launch_ex_params *p = data->params;
    k.function = p->function;
    memcpy(k.block, p->config->block, sizeof k.block);
    k.shared = p->config->shared;
  } else {
    const launch_params *p = data->params;
    k.function = p->function;
    memcpy(k.block, p->block, sizeof k.block);
    k.shared = p->shared;
  }
  inside = 1;
  pthread_mutex_lock(&lock);
  if (k.function && is_new(&k)) {
    int blocks = -1, threads = -1, device = 0;
    if (current_device(&device) == 0) device_attribute(&threads, DEVICE_THREADS, device);
    int status = occupancy(&blocks, k.function, (int)(k.block[0] * k.block[1] * k.block[2]), k.shared);
    fprintf(out, "{\"name\": \"%s\", \"block\": [%u, %u, %u], \"dynamic\": %u, \"static\": %d, \"registers\": %d, \"blocks\": %d, \"status\": %d, \"threads_per_multiprocessor\": %d}\n",
            data->symbol_name ? data->symbol_name : "", k.block[0], k.block[1], k.block[2], k.shared,
            attribute(ATTRIBUTE_SHARED, k.function), attribute(ATTRIBUTE_REGISTERS, k.function), blocks, status, threads);
    fflush(out);
  }
  pthread_mutex_unlock(&lock);
  inside = 0;
}

int InitializeInjection(void) {
  static int started;
  static const uint32_t ids[] = {CBID_LAUNCH, CBID_LAUNCH_PTSZ, CBID_COOPERATIVE, CBID_COOPERATIVE_PTSZ, CBID_LAUNCH_EX, CBID_LAUNCH_EX_PTSZ};
  if (started++ || !getenv("OCCUPANCY_OUT")) return 1;
  void *library = load_cupti();
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library || !driver) return 1;
  occupancy = (int (*)(int *, void *, int, size_t))dlsym(driver, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  function_attribute = (int (*)(int *, int, void *))dlsym(driver, "cuFuncGetAttribute");
  kernel_attribute = (int (*)(int *, int, void *, int))dlsym(driver, "cuKernelGetAttribute");
  current_device = (int (*)(int *))dlsym(driver, "cuCtxGetDevice");
  device_attribute = (int (*)(int *, int, int))dlsym(driver, "cuDeviceGetAttribute");
  int (*subscribe)(void **, void *, void *) = (int (*)(void **, void *, void *))dlsym(library, "cuptiSubscribe");
  int (*enable)(uint32_t, void *, int, uint32_t) = (int (*)(uint32_t, void *, int, uint32_t))dlsym(library, "cuptiEnableCallback");
  out = fopen(getenv("OCCUPANCY_OUT"), "a");
  if (!occupancy || !function_attribute || !current_device || !device_attribute || !subscribe || !enable || !out) {
    fprintf(stderr, "occupancy shim: a function is missing\n");
    return 1;
  }
  void *subscriber = NULL;
  int status = subscribe(&subscriber, (void *)launched, NULL);
  for (int i = 0; i < 6 && !status; i++) status = enable(1, subscriber, DOMAIN_DRIVER_API, ids[i]);
  if (status) fprintf(stderr, "occupancy shim: CUPTI refused: error %d\n", status);
  return 1;
}
