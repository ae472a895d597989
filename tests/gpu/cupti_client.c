// A bare CUPTI client: kernel, copy, peer copy and memset records into reused 1 MiB buffers, counted and thrown away.
// It is the independent count that gputrace's reports are compared with, and the floor of the overhead table.
// Loaded by the driver itself through CUDA_INJECTION64_PATH; appends one JSON line to the file CUPTI_CLIENT_OUT.
// A program can load it as a library instead, and switch it by cupti_client_switch, with settings by cupti_client_set.
// CUPTI_CLIENT_ATTRIBUTES sets attributes of CUPTI before it records: NUMBER=VALUE, with commas between them.
// CUPTI_CLIENT_MEMORY=1 adds allocations and releases by kind of memory (MEMORY2 records).
// CUPTI_CLIENT_NAMES=1 adds counts and times by (mangled) kernel name.
#define _GNU_SOURCE
#include "cupti_load.h"
#include "cupti_min.h"
#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20, BUFFER_BYTES_MOST = 8 << 20, NAMES = 1 << 14, COPY_KINDS = 16, MEMORY_KINDS = 9, POOL_MEMORY = 8, CORRELATION_BITS = 1 << 27 };
typedef struct { uint64_t calls, bytes, ns; } total;
typedef struct { char *text; uint64_t calls, ns; } name_total;
typedef struct free_buffer { struct free_buffer *next; } free_buffer;

static int (*next_record)(uint8_t *, size_t, void **);
static int (*flush_all)(uint32_t);
static int (*dropped_records)(void *, uint32_t, size_t *);
static int (*flush_period)(uint32_t);
static int (*subscribe)(void **, void *, void *);
static int (*unsubscribe)(void *);
static int (*enable_callback)(uint32_t, void *, int, uint32_t);
static int (*enable_domain)(uint32_t, void *, int);

// What cupti_client_set says: bytes of a buffer, CUPTI's own flush period, ms between flushes by a thread of ours,
// whether these are forced, and the subscriber:
// 0 none, 1 of launches, 2 of all driver functions, 3 of nothing, and then there are no records either.
static size_t buffer_bytes = BUFFER_BYTES;
static unsigned long period_ms, flush_ms, forced, callbacks;
// Flushes by a thread of ours since they were last asked for, and what they took.
static uint64_t flushes, flushes_ns;
enum { OF_NOTHING = 3 };
static volatile int is_on;
static void *subscriber;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static free_buffer *free_buffers;
static uint64_t buffers_made, buffers_filled;
static total kernels, graph_kernels, graph_nodes, copies[COPY_KINDS], peer_copies, memsets;
static uint64_t graph_launches, bad_times, dropped, other_records;
static name_total names[NAMES];
static uint8_t seen_graph_launch[CORRELATION_BITS / 8];
// Allocated and released.
static total memory[MEMORY_KINDS][2];
static int want_names, want_memory, exit_hooked, written;
static uint32_t version;

static void write_totals(void);

static void requested(uint8_t **buffer, size_t *size, size_t *max_records) {
  pthread_mutex_lock(&lock);
  free_buffer *taken = free_buffers;
  if (taken) free_buffers = taken->next;
  else buffers_made++;
  // CUDA's own exit handler is registered by now, so a handler registered here runs before it.
  int hook_exit = !exit_hooked;
  exit_hooked = 1;
  pthread_mutex_unlock(&lock);
  if (hook_exit) atexit(write_totals);
  // Of the largest size: what is not used of it takes no memory.
  *buffer = taken ? (uint8_t *)taken : aligned_alloc(64, BUFFER_BYTES_MOST);
  *size = buffer_bytes;
  *max_records = 0;
}

static void add(total *into, uint64_t bytes, uint64_t start, uint64_t end) {
  into->calls++;
  into->bytes += bytes;
  if (start && end && end >= start) into->ns += end - start;
  else bad_times++;
}

static void add_name(const char *text, uint64_t ns) {
  uint64_t hash = 14695981039346656037u;
  for (const char *c = text; *c; c++) hash = (hash ^ (uint8_t)*c) * 1099511628211u;
  for (uint64_t i = 0; i < NAMES; i++) {
    name_total *slot = &names[(hash + i) % NAMES];
    if (!slot->text) slot->text = strdup(text);
    if (strcmp(slot->text, text)) continue;
    slot->calls++;
    slot->ns += ns;
    return;
  }
}

static void note_graph_launch(uint32_t correlation) {
  if (correlation >= CORRELATION_BITS) return;
  uint8_t bit = (uint8_t)(1u << (correlation % 8));
  if (!(seen_graph_launch[correlation / 8] & bit)) graph_launches++;
  seen_graph_launch[correlation / 8] |= bit;
}

static void count(const uint8_t *record) {
  uint32_t kind = read_u32(record, 0), correlation = 0;
  uint64_t node = 0;
  if (kind == KIND_KERNEL || kind == KIND_CONCURRENT_KERNEL) {
    uint64_t start = read_u64(record, KERNEL_START), end = read_u64(record, KERNEL_END);
    node = read_u64(record, KERNEL_GRAPH_NODE);
    correlation = read_u32(record, KERNEL_CORRELATION);
    add(&kernels, 0, start, end);
    if (node) graph_kernels.calls++;
    const char *text = (const char *)(uintptr_t)read_u64(record, KERNEL_NAME);
    if (want_names && text) add_name(text, end > start ? end - start : 0);
  } else if (kind == KIND_MEMCPY || kind == KIND_MEMCPY2) {
    total *into = kind == KIND_MEMCPY2 ? &peer_copies : &copies[record[COPY_KIND] % COPY_KINDS];
    add(into, read_u64(record, COPY_BYTES), read_u64(record, COPY_START), read_u64(record, COPY_END));
    node = read_u64(record, kind == KIND_MEMCPY ? MEMCPY_GRAPH_NODE : PEER_GRAPH_NODE);
    correlation = read_u32(record, kind == KIND_MEMCPY ? MEMCPY_CORRELATION : PEER_CORRELATION);
  } else if (kind == KIND_MEMSET) {
    add(&memsets, read_u64(record, MEMSET_BYTES), read_u64(record, MEMSET_START), read_u64(record, MEMSET_END));
    node = read_u64(record, MEMSET_GRAPH_NODE);
    correlation = read_u32(record, MEMSET_CORRELATION);
  } else if (kind == KIND_MEMORY2) {
    // Memory of a pool is the device's, with a type of pool.
    uint32_t of = read_u32(record, MEMORY_POOL_TYPE) ? POOL_MEMORY : read_u32(record, MEMORY_KIND);
    uint32_t operation = read_u32(record, MEMORY_OPERATION);
    if (of < MEMORY_KINDS && (operation == 1 || operation == 2)) {
      memory[of][operation - 1].calls++;
      memory[of][operation - 1].bytes += read_u64(record, MEMORY_BYTES);
    } else {
      other_records++;
    }
  } else {
    other_records++;
  }
  if (node) {
    graph_nodes.calls++;
    note_graph_launch(correlation);
  }
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  (void)size;
  pthread_mutex_lock(&lock);
  buffers_filled++;
  void *record = NULL;
  while (valid && next_record(buffer, valid, &record) == 0) count(record);
  size_t lost = 0;
  if (dropped_records && dropped_records(context, stream, &lost) == 0) dropped += lost;
  free_buffer *spare = (free_buffer *)buffer;
  spare->next = free_buffers;
  free_buffers = spare;
  pthread_mutex_unlock(&lock);
}

static void print_total(FILE *out, const char *name, const total *t) {
  fprintf(out, ", \"%s\": {\"calls\": %llu, \"bytes\": %llu, \"ns\": %llu}", name, (unsigned long long)t->calls,
          (unsigned long long)t->bytes, (unsigned long long)t->ns);
}

static void print_names(FILE *out) {
  const char *comma = "";
  fprintf(out, ", \"names\": {");
  for (int i = 0; i < NAMES; i++) {
    if (!names[i].text) continue;
    fprintf(out, "%s\"", comma);
    for (const char *c = names[i].text; *c; c++) {
      if (*c == '"' || *c == '\\') fputc('\\', out);
      if ((uint8_t)*c >= 0x20) fputc(*c, out);
    }
    fprintf(out, "\": [%llu, %llu]", (unsigned long long)names[i].calls, (unsigned long long)names[i].ns);
    comma = ", ";
  }
  fprintf(out, "}");
}

static void print_memory(FILE *out) {
  static const char *const kinds[MEMORY_KINDS] = {"unknown", "pageable", "pinned", "device", "array", "managed", "static", "managed_static", "pool"};
  const char *comma = "";
  fprintf(out, ", \"memory\": {");
  for (int i = 0; i < MEMORY_KINDS; i++) {
    const total *made = &memory[i][0], *freed = &memory[i][1];
    if (!made->calls && !freed->calls) continue;
    fprintf(out, "%s\"%s\": [%llu, %llu, %llu, %llu]", comma, kinds[i], (unsigned long long)made->calls, (unsigned long long)made->bytes,
            (unsigned long long)freed->calls, (unsigned long long)freed->bytes);
    comma = ", ";
  }
  fprintf(out, "}");
}

static void write_totals(void) {
  static const char *const kinds[COPY_KINDS] = {"unknown", "htod", "dtoh", "htoa", "atoh", "atoa", "atod", "dtoa", "dtod", "htoh", "ptop"};
  if (written) return;
  written = 1;
  flush_all(1);
  FILE *out = getenv("CUPTI_CLIENT_OUT") ? fopen(getenv("CUPTI_CLIENT_OUT"), "a") : NULL;
  if (!out) return;
  pthread_mutex_lock(&lock);
  fprintf(out, "{\"pid\": %d, \"cupti\": %u, \"path\": \"%s\", \"graph_launches\": %llu, \"bad_times\": %llu, \"dropped\": %llu, "
          "\"other\": %llu, \"buffers_made\": %llu, \"buffers_filled\": %llu", getpid(), version, cupti_path,
          (unsigned long long)graph_launches, (unsigned long long)bad_times, (unsigned long long)dropped,
          (unsigned long long)other_records, (unsigned long long)buffers_made, (unsigned long long)buffers_filled);
  print_total(out, "kernels", &kernels);
  print_total(out, "graph_kernels", &graph_kernels);
  print_total(out, "graph_nodes", &graph_nodes);
  for (int i = 0; i < COPY_KINDS; i++)
    if (kinds[i] && copies[i].calls) print_total(out, kinds[i], &copies[i]);
  if (peer_copies.calls) print_total(out, "memcpy2", &peer_copies);
  print_total(out, "memsets", &memsets);
  if (want_memory) print_memory(out);
  if (want_names) print_names(out);
  fprintf(out, "}\n");
  fclose(out);
  pthread_mutex_unlock(&lock);
}

static int (*enable)(int), (*disable)(int);
static const int client_kinds[] = {KIND_CONCURRENT_KERNEL, KIND_MEMCPY, KIND_MEMCPY2, KIND_MEMSET};

static int set_attributes(void *library) {
  int (*set)(int, size_t *, void *) = (int (*)(int, size_t *, void *))dlsym(library, "cuptiActivitySetAttribute");
  const char *text = getenv("CUPTI_CLIENT_ATTRIBUTES");
  while (text && *text) {
    int attribute, length = 0, status;
    unsigned long value;
    if (!set || sscanf(text, "%d=%lu%n", &attribute, &value, &length) != 2) return -1;
    // Sizes take 8 bytes and switches one; CUPTI refuses what is too large.
    size_t bytes = sizeof value;
    uint8_t is_set = value != 0;
    if ((status = set(attribute, &bytes, &value))) bytes = 1, status = set(attribute, &bytes, &is_set);
    if (status) return status;
    text += length;
    text += *text == ',';
  }
  return 0;
}

// Finds CUPTI and gives it the buffers: 0, CUPTI's error, or -1 for a library that lacks something.
static int prepare(void) {
  void *library = load_cupti();
  if (!library) return -1;
  int (*get_version)(uint32_t *) = (int (*)(uint32_t *))dlsym(library, "cuptiGetVersion");
  enable = (int (*)(int))dlsym(library, "cuptiActivityEnable");
  disable = (int (*)(int))dlsym(library, "cuptiActivityDisable");
  int (*register_callbacks)(void *, void *) = (int (*)(void *, void *))dlsym(library, "cuptiActivityRegisterCallbacks");
  next_record = (int (*)(uint8_t *, size_t, void **))dlsym(library, "cuptiActivityGetNextRecord");
  flush_all = (int (*)(uint32_t))dlsym(library, "cuptiActivityFlushAll");
  dropped_records = (int (*)(void *, uint32_t, size_t *))dlsym(library, "cuptiActivityGetNumDroppedRecords");
  flush_period = (int (*)(uint32_t))dlsym(library, "cuptiActivityFlushPeriod");
  subscribe = (int (*)(void **, void *, void *))dlsym(library, "cuptiSubscribe");
  unsubscribe = (int (*)(void *))dlsym(library, "cuptiUnsubscribe");
  enable_callback = (int (*)(uint32_t, void *, int, uint32_t))dlsym(library, "cuptiEnableCallback");
  enable_domain = (int (*)(uint32_t, void *, int))dlsym(library, "cuptiEnableDomain");
  if (!get_version || !enable || !disable || !register_callbacks || !next_record || !flush_all) {
    fprintf(stderr, "cupti client: %s lacks a function\n", cupti_path);
    return -1;
  }
  want_names = getenv("CUPTI_CLIENT_NAMES") != NULL;
  want_memory = getenv("CUPTI_CLIENT_MEMORY") != NULL;
  get_version(&version);
  int status = register_callbacks((void *)requested, (void *)completed);
  if (!status) status = set_attributes(library);
  if (status) fprintf(stderr, "cupti client: %s refused: error %d\n", cupti_path, status);
  return status;
}

static void called_back(void *user, int domain, uint32_t id, const callback_data *data) {
  (void)user, (void)domain, (void)id, (void)data;
}

// Begins or ends the subscription that `callbacks` asks for.
static int follow_calls(int wanted) {
  static const uint32_t launches[] = {CBID_LAUNCH, CBID_LAUNCH_PTSZ, CBID_COOPERATIVE, CBID_COOPERATIVE_PTSZ, CBID_LAUNCH_EX, CBID_LAUNCH_EX_PTSZ};
  int status = 0;
  if (!wanted) {
    if (subscriber) status = unsubscribe(subscriber);
    subscriber = NULL;
    return status;
  }
  if ((status = subscribe(&subscriber, (void *)called_back, NULL))) return status;
  if (callbacks == OF_NOTHING) return 0;
  if (callbacks == 2) return enable_domain(1, subscriber, DOMAIN_DRIVER_API);
  for (size_t i = 0; i < sizeof launches / sizeof *launches && !status; i++) status = enable_callback(1, subscriber, DOMAIN_DRIVER_API, launches[i]);
  return status;
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *flush_often(void *unused) {
  (void)unused;
  for (;;) {
    usleep(flush_ms ? flush_ms * 1000 : 20000);
    if (!is_on || !flush_ms) continue;
    uint64_t begun = now_ns();
    flush_all((uint32_t)forced);
    __atomic_fetch_add(&flushes_ns, now_ns() - begun, __ATOMIC_RELAXED);
    __atomic_fetch_add(&flushes, 1, __ATOMIC_RELAXED);
  }
  return NULL;
}

// While the client is off: buffer=BYTES,period=MS,flush=MS,forced=0|1,callbacks=0|1|2|3; what is not named is as at first. 0, or -3 for other text.
int cupti_client_set(const char *text) {
  static int has_thread;
  pthread_t thread;
  buffer_bytes = BUFFER_BYTES, period_ms = flush_ms = forced = callbacks = 0;
  while (*text) {
    char name[16];
    unsigned long value;
    int length = 0;
    if (sscanf(text, "%15[a-z]=%lu%n", name, &value, &length) != 2) return -3;
    if (!strcmp(name, "buffer") && value <= BUFFER_BYTES_MOST) buffer_bytes = value;
    else if (!strcmp(name, "period")) period_ms = value;
    else if (!strcmp(name, "flush")) flush_ms = value;
    else if (!strcmp(name, "forced") && value <= 1) forced = value;
    else if (!strcmp(name, "callbacks") && value <= OF_NOTHING) callbacks = value;
    else return -3;
    text += length;
    text += *text == ',';
  }
  if (flush_ms && !has_thread++ && pthread_create(&thread, NULL, flush_often, NULL)) return -3;
  return 0;
}

static int enable_all(void) {
  int status = callbacks ? follow_calls(1) : 0;
  if (!status && flush_period) status = flush_period(period_ms);
  for (int i = 0; i < 4 && callbacks != OF_NOTHING && !status; i++) status = enable(client_kinds[i]);
  if (want_memory && callbacks != OF_NOTHING && !status) status = enable(KIND_MEMORY2);
  if (status) fprintf(stderr, "cupti client: %s refused: error %d\n", cupti_path, status);
  return status;
}

static uint64_t counted(void) {
  pthread_mutex_lock(&lock);
  uint64_t calls = kernels.calls;
  pthread_mutex_unlock(&lock);
  return calls;
}

// How many flushes there were since the last question, or since the begin; *ns gets what they took in all, and
// *calls of how many kernels records came meanwhile.
uint64_t cupti_client_flushes(uint64_t *ns, uint64_t *calls) {
  static uint64_t before;
  uint64_t now = counted();
  *ns = __atomic_exchange_n(&flushes_ns, 0, __ATOMIC_RELAXED);
  *calls = now - before;
  before = now;
  return __atomic_exchange_n(&flushes, 0, __ATOMIC_RELAXED);
}

static int prepared;

// Begins or ends the client in a program that loaded it, from one thread: 0, what prepare() returns, or -2 where
// it ends without a kernel's record, so that nothing was measured.
int cupti_client_switch(int on) {
  static int status;
  static uint64_t before;
  if (!prepared++) status = prepare();
  if (status) return status;
  if (on) {
    before = counted();
    is_on = 1;
    return enable_all();
  }
  is_on = 0;
  if (callbacks == OF_NOTHING) return follow_calls(0);
  int failed = flush_all(1);
  if (!failed && counted() == before) failed = -2;
  for (int i = 0; i < 4; i++) {
    int now = disable(client_kinds[i]);
    if (!failed) failed = now;
  }
  int now = follow_calls(0);
  return failed ? failed : now;
}

int InitializeInjection(void) {
  static int started;
  if (started++) return 1;
  prepared = is_on = 1;
  if (!prepare() && !enable_all()) atexit(write_totals);
  return 1;
}
