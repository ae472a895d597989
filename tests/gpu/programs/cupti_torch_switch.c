// A bare CUPTI client whose thread switches its activity kinds off and on while a PyTorch program launches: does libcupti survive
// it? Loaded by cupti_torch_switch.py. Kinds are on for 2 ms, and off for 0 to 16 ms.
#define _GNU_SOURCE
#include "../cupti_load.h"
#include "../cupti_min.h"
#include <pthread.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 18, ON_US = 2000, OFF_US = 16000 };
enum { FLUSHES_ON = 1, FLUSHES_OFF = 2, SUBSCRIBES = 4, SWITCHES_KERNELS = 8, SWITCHES_COPIES = 16 };
typedef struct spare { struct spare *next; } spare;

static int (*enable)(int), (*disable)(int), (*flush_all)(uint32_t), (*next_record)(uint8_t *, size_t, void **);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static spare *spares;
static volatile unsigned long records, switches;
static int how;
// What is not switched is on all the time.
static const int kinds[] = {KIND_CONCURRENT_KERNEL, KIND_MEMCPY, KIND_MEMCPY2, KIND_MEMSET};

static int is_switched(int kind) { return how & (kind == KIND_CONCURRENT_KERNEL ? SWITCHES_KERNELS : SWITCHES_COPIES); }

static void requested(uint8_t **buffer, size_t *size, size_t *max_records) {
  pthread_mutex_lock(&lock);
  spare *taken = spares;
  if (taken) spares = taken->next;
  pthread_mutex_unlock(&lock);
  *buffer = taken ? (uint8_t *)taken : aligned_alloc(64, BUFFER_BYTES);
  *size = BUFFER_BYTES;
  *max_records = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  (void)context, (void)stream, (void)size;
  void *record = NULL;
  while (valid && next_record(buffer, valid, &record) == 0) records++;
  pthread_mutex_lock(&lock);
  ((spare *)buffer)->next = spares;
  spares = (spare *)buffer;
  pthread_mutex_unlock(&lock);
}

static void called(void *data, int domain, uint32_t id, const void *call) { (void)data, (void)domain, (void)id, (void)call; }

static void *run(void *unused) {
  for (;; switches++) {
    for (int i = 0; i < 4; i++)
      if (is_switched(kinds[i])) enable(kinds[i]);
    usleep(ON_US);
    if (how & FLUSHES_ON) flush_all(0);
    for (int i = 0; i < 4; i++)
      if (is_switched(kinds[i])) disable(kinds[i]);
    if (how & FLUSHES_OFF) flush_all(0);
    usleep(1 + (unsigned)rand() % OFF_US);
  }
  return unused;
}

// 0, or CUPTI's error, or -1 for a library that lacks something.
int torch_switch_start(int asked) {
  void *library = load_cupti();
  if (!library) return -1;
  how = asked;
  enable = (int (*)(int))dlsym(library, "cuptiActivityEnable");
  disable = (int (*)(int))dlsym(library, "cuptiActivityDisable");
  flush_all = (int (*)(uint32_t))dlsym(library, "cuptiActivityFlushAll");
  next_record = (int (*)(uint8_t *, size_t, void **))dlsym(library, "cuptiActivityGetNextRecord");
  int (*register_callbacks)(void *, void *) = (int (*)(void *, void *))dlsym(library, "cuptiActivityRegisterCallbacks");
  int (*subscribe)(void **, void *, void *) = (int (*)(void **, void *, void *))dlsym(library, "cuptiSubscribe");
  int (*enable_domain)(uint32_t, void *, int) = (int (*)(uint32_t, void *, int))dlsym(library, "cuptiEnableDomain");
  if (!enable || !disable || !flush_all || !next_record || !register_callbacks || !subscribe || !enable_domain) return -1;
  void *subscriber;
  int status = how & SUBSCRIBES ? subscribe(&subscriber, (void *)called, NULL) : 0;
  if (!status && how & SUBSCRIBES) status = enable_domain(1, subscriber, DOMAIN_DRIVER_API);
  if (!status) status = register_callbacks((void *)requested, (void *)completed);
  for (int i = 0; !status && i < 4; i++)
    if (!is_switched(kinds[i])) status = enable(kinds[i]);
  pthread_t thread;
  return status ? status : pthread_create(&thread, NULL, run, NULL);
}

unsigned long torch_switch_count(int is_records) { return is_records ? records : switches; }
