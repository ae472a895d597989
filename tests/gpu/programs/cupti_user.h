// What cupti_user.c asks of CUPTI: entry points bound at run time (or linked, with -DLINKED), buffers, and the records
// that came back, kept as they are needed for comparing.
#ifndef GPUTRACE_TEST_CUPTI_USER_H
#define GPUTRACE_TEST_CUPTI_USER_H
#include "../cupti_load.h"
#include "../cupti_min.h"
#include <pthread.h>

typedef void (*callback_function)(void *, uint32_t, uint32_t, const callback_data *);
#define EACH_CUPTI(X)                                                                          \
  X(cuptiSubscribe, (void **, callback_function, void *))                                      \
  X(cuptiUnsubscribe, (void *))                                                                \
  X(cuptiEnableDomain, (uint32_t, void *, int))                                                \
  X(cuptiEnableCallback, (uint32_t, void *, int, uint32_t))                                    \
  X(cuptiActivityEnable, (int))                                                                \
  X(cuptiActivityDisable, (int))                                                               \
  X(cuptiActivityRegisterCallbacks, (void *, void *))                                          \
  X(cuptiActivityGetNextRecord, (uint8_t *, size_t, void **))                                  \
  X(cuptiActivityFlushAll, (uint32_t))                                                         \
  X(cuptiActivityFlushPeriod, (uint32_t))                                                      \
  X(cuptiActivityGetNumDroppedRecords, (void *, uint32_t, size_t *))                           \
  X(cuptiActivityPushExternalCorrelationId, (int, uint64_t))                                   \
  X(cuptiActivityPopExternalCorrelationId, (int, uint64_t *))                                  \
  X(cuptiActivityRegisterTimestampCallback, (void *))                                          \
  X(cuptiGetTimestamp, (uint64_t *))                                                           \
  X(cuptiFinalize, (void))
#ifdef LINKED
#define DECLARE_CUPTI(name, arguments) extern int name arguments;
EACH_CUPTI(DECLARE_CUPTI)
static void *cupti_library;
static void bind_cupti(void) { snprintf(cupti_path, sizeof cupti_path, "linked"); }
#else
#define DECLARE_CUPTI(name, arguments) static int(*name) arguments;
EACH_CUPTI(DECLARE_CUPTI)
static void *cupti_library;
static void bind_cupti(void) {
  // CUPTI_USER_COPY names a libcupti to use although another is mapped.
  const char *copy = getenv("CUPTI_USER_COPY");
  cupti_library = copy ? dlopen(copy, RTLD_NOW | RTLD_LOCAL) : load_cupti();
  if (!cupti_library) exit(3);
#define BIND_CUPTI(name, arguments) \
  if (!(*(void **)&name = dlsym(cupti_library, #name))) fprintf(stderr, "no %s\n", #name), exit(3);
  EACH_CUPTI(BIND_CUPTI)
}
#endif

enum { BUFFER_BYTES = 1 << 18, RECORDS = 1 << 14, BUFFERS = 4096 };
typedef struct { int kind, detail; uint32_t correlation; uint64_t start, end, id; const char *name; } record;
static record records[RECORDS];
static int record_count, unknown_buffers, buffer_count;
static uint8_t *buffers[BUFFERS];
static size_t dropped_records;
static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;

static void buffer_requested(uint8_t **buffer, size_t *size, size_t *most) {
  *buffer = (uint8_t *)aligned_alloc(64, BUFFER_BYTES);
  *size = BUFFER_BYTES;
  *most = 0;
  pthread_mutex_lock(&records_lock);
  if (buffer_count < BUFFERS) buffers[buffer_count++] = *buffer;
  pthread_mutex_unlock(&records_lock);
}

static void take(const uint8_t *r) {
  record got = {.kind = (int)read_u32(r, 0)};
  switch (got.kind) {
    case KIND_KERNEL: case KIND_CONCURRENT_KERNEL:
      got.start = read_u64(r, KERNEL_START), got.end = read_u64(r, KERNEL_END), got.correlation = read_u32(r, KERNEL_CORRELATION);
      got.name = strdup((const char *)(uintptr_t)read_u64(r, KERNEL_NAME));
      break;
    case KIND_MEMCPY:
      got.start = read_u64(r, COPY_START), got.end = read_u64(r, COPY_END), got.correlation = read_u32(r, MEMCPY_CORRELATION);
      got.detail = r[COPY_KIND], got.id = read_u64(r, COPY_BYTES);
      break;
    case KIND_MEMSET:
      got.start = read_u64(r, MEMSET_START), got.end = read_u64(r, MEMSET_END), got.correlation = read_u32(r, MEMSET_CORRELATION);
      got.id = read_u64(r, MEMSET_BYTES);
      break;
    case KIND_DRIVER: case KIND_RUNTIME:
      got.start = read_u64(r, API_START), got.end = read_u64(r, API_END), got.correlation = read_u32(r, API_CORRELATION);
      got.detail = (int)read_u32(r, API_CBID);
      break;
    case KIND_EXTERNAL_CORRELATION:
      got.detail = (int)read_u32(r, EXTERNAL_KIND), got.id = read_u64(r, EXTERNAL_ID), got.correlation = read_u32(r, EXTERNAL_CORRELATION);
      break;
    case KIND_SYNCHRONIZATION: got.detail = (int)read_u32(r, SYNCHRONIZATION_TYPE); break;
    default: break;
  }
  if (record_count < RECORDS) records[record_count++] = got;
}

static void buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  (void)size;
  size_t lost = 0;
  void *at = NULL;
  int known = 0;
  pthread_mutex_lock(&records_lock);
  for (int i = 0; i < buffer_count && !known; i++)
    if (buffers[i] == buffer) known = 1, buffers[i] = buffers[--buffer_count];
  if (!known) unknown_buffers++;
  while (known && valid && cuptiActivityGetNextRecord(buffer, valid, &at) == 0) take((const uint8_t *)at);
  if (cuptiActivityGetNumDroppedRecords(context, stream, &lost) == 0) dropped_records += lost;
  pthread_mutex_unlock(&records_lock);
  if (known) free(buffer);
}

static int count_records(int kind) {
  int found = 0;
  pthread_mutex_lock(&records_lock);
  for (int i = 0; i < record_count; i++) found += records[i].kind == kind;
  pthread_mutex_unlock(&records_lock);
  return found;
}

static const record *find_record(int kind, uint32_t correlation) {
  for (int i = 0; i < record_count; i++)
    if (records[i].kind == kind && records[i].correlation == correlation) return &records[i];
  return NULL;
}

static void forget_records(void) {
  pthread_mutex_lock(&records_lock);
  record_count = 0;
  pthread_mutex_unlock(&records_lock);
}
#endif
