/* The part of CUPTI that the test programs use, looked up in the libcupti that the loader finds. Our own declarations. */
#ifndef CUPTI_H
#define CUPTI_H

#include <dlfcn.h>
#include <stdint.h>

#include "driver.h"

enum { MEMCPY = 1, MEMSET = 2, KERNEL = 3, DRIVER = 4, CONCURRENT_KERNEL = 10, MEMCPY2 = 22 };
enum { DRIVER_API = 1, ENTER = 0 };

typedef struct {
    int site;
    const char *function;
    const void *parameters;
    void *result;
    const char *symbol;
    CUcontext context;
    uint32_t context_id;
    uint64_t *shared;
    uint32_t correlation;
} CallData;

typedef void (*Callback)(void *user, int domain, uint32_t id, const CallData *data);
typedef void (*Request)(uint8_t **buffer, size_t *bytes, size_t *most);
typedef void (*Complete)(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid);

#define CUPTI(NAME, ...) static int (*cupti##NAME)(__VA_ARGS__);
#define CUPTI_FUNCTIONS                                                                                               \
    CUPTI(Subscribe, void **handle, Callback callback, void *user)                                                    \
    CUPTI(Unsubscribe, void *handle)                                                                                  \
    CUPTI(EnableCallback, uint32_t on, void *handle, int domain, uint32_t id)                                         \
    CUPTI(EnableDomain, uint32_t on, void *handle, int domain)                                                        \
    CUPTI(GetCallbackState, uint32_t *on, void *handle, int domain, uint32_t id)                                      \
    CUPTI(ActivityRegisterCallbacks, Request request, Complete complete)                                              \
    CUPTI(ActivityEnable, int kind)                                                                                   \
    CUPTI(ActivityDisable, int kind)                                                                                  \
    CUPTI(ActivityFlushAll, uint32_t flag)                                                                            \
    CUPTI(ActivityFlushPeriod, uint32_t milliseconds)                                                                 \
    CUPTI(ActivityGetNextRecord, uint8_t *buffer, size_t valid, uint8_t **record)                                     \
    CUPTI(ActivityGetNumDroppedRecords, CUcontext context, uint32_t stream, size_t *dropped)                          \
    CUPTI(ActivityRegisterTimestampCallback, uint64_t (*now)(void))                                                   \
    CUPTI(GetTimestamp, uint64_t *now)                                                                                \
    CUPTI(Finalize, void)                                                                                             \
    CUPTI(Subscribe_v2, void **handle, Callback callback, void *user, void *parameters)
CUPTI_FUNCTIONS
#undef CUPTI

static inline void cupti_load_from(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(98);
    }
#define CUPTI(NAME, ...) *(void **)&cupti##NAME = dlsym(library, "cupti" #NAME);
    CUPTI_FUNCTIONS
#undef CUPTI
}

static inline void cupti_load(void) { cupti_load_from("libcupti.so"); }

/* What came in records, by kind, and their number of buffers. */
static long records[64], buffers, out_of_order;
static uint64_t first_start, last_end;

static inline uint64_t u64_at(const uint8_t *record, size_t at)
{
    uint64_t value;
    memcpy(&value, record + at, sizeof value);
    return value;
}

static void request(uint8_t **buffer, size_t *bytes, size_t *most)
{
    *bytes = 32768;
    *buffer = aligned_alloc(8, *bytes);
    *most = 0;
}

static void complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
    (void)context, (void)stream, (void)bytes;
    buffers++;
    for (uint8_t *record = NULL; cuptiActivityGetNextRecord(buffer, valid, &record) == 0;) {
        int kind = *(int *)record;
        records[kind & 63]++;
        if (kind == CONCURRENT_KERNEL || kind == KERNEL) {
            uint64_t start = u64_at(record, 16), end = u64_at(record, 24);
            if (end <= start)
                out_of_order++;
            if (!first_start || start < first_start)
                first_start = start;
            if (end > last_end)
                last_end = end;
        }
    }
    free(buffer);
}

/* Prints what came since the last time. */
static inline void tell(const char *when)
{
    printf("%s:", when);
    for (int kind = 0; kind < 64; kind++)
        if (records[kind])
            printf(" %ld of kind %d", records[kind], kind);
    printf(", %ld out of order\n", out_of_order);
    memset(records, 0, sizeof records);
}

#endif
