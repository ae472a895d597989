// The few CUPTI declarations that the test clients need, so that they compile without the toolkit's headers and load any
// libcupti from 11.x on. Offsets are facts about append-only records; `layout_check.c` compares them with real headers.
#ifndef GPUTRACE_TEST_CUPTI_MIN_H
#define GPUTRACE_TEST_CUPTI_MIN_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
  KIND_MEMCPY = 1, KIND_MEMSET = 2, KIND_KERNEL = 3, KIND_DRIVER = 4, KIND_RUNTIME = 5, KIND_CONCURRENT_KERNEL = 10,
  KIND_OVERHEAD = 17, KIND_MEMCPY2 = 22, KIND_SYNCHRONIZATION = 38, KIND_EXTERNAL_CORRELATION = 39,
  KIND_MEMORY2 = 49,
};
enum { DOMAIN_DRIVER_API = 1, DOMAIN_RUNTIME_API = 2, SITE_ENTER = 0, SITE_EXIT = 1, EXTERNAL_CUSTOM0 = 3 };
enum {
  CBID_LAUNCH = 307, CBID_LAUNCH_PTSZ = 442, CBID_COOPERATIVE = 477, CBID_COOPERATIVE_PTSZ = 478,
  CBID_LAUNCH_EX = 652, CBID_LAUNCH_EX_PTSZ = 653, CBID_CTX_SYNCHRONIZE = 17,
};

// Byte offsets inside the activity records.
enum {
  KERNEL_START = 16, KERNEL_END = 24, KERNEL_CORRELATION = 92, KERNEL_NAME = 104, KERNEL_GRAPH_NODE = 144,
  COPY_KIND = 4, COPY_BYTES = 8, COPY_START = 16, COPY_END = 24,
  MEMCPY_CORRELATION = 44, MEMCPY_GRAPH_NODE = 64, PEER_CORRELATION = 60, PEER_GRAPH_NODE = 72,
  API_CBID = 4, API_START = 8, API_END = 16, API_THREAD = 28, API_CORRELATION = 32,
  EXTERNAL_KIND = 4, EXTERNAL_ID = 8, EXTERNAL_CORRELATION = 16, SYNCHRONIZATION_TYPE = 4,
  MEMORY_OPERATION = 4, MEMORY_KIND = 8, MEMORY_BYTES = 24, MEMORY_POOL_TYPE = 80,
  MEMSET_BYTES = 8, MEMSET_START = 16, MEMSET_END = 24, MEMSET_CORRELATION = 44, MEMSET_GRAPH_NODE = 64,
};

typedef struct {
  int site;
  const char *function_name;
  const void *params;
  void *return_value;
  const char *symbol_name;
  void *context;
  uint32_t context_uid;
  uint64_t *correlation_data;
  uint32_t correlation_id;
} callback_data;

static inline uint64_t read_u64(const uint8_t *record, size_t offset) {
  uint64_t value;
  memcpy(&value, record + offset, sizeof value);
  return value;
}
static inline uint32_t read_u32(const uint8_t *record, size_t offset) {
  uint32_t value;
  memcpy(&value, record + offset, sizeof value);
  return value;
}
#endif
