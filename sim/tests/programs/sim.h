/* What the programs here share: declarations of the interfaces under test, checks, and a CUPTI client. */
#ifndef SIM_H
#define SIM_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream, *CUevent, *CUgraph, *CUgraphExec, *CUgraphNode;

CUresult cuInit(unsigned), cuDeviceGet(CUdevice *, int), cuDeviceGetCount(int *), cuDriverGetVersion(int *);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice), cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice), cuCtxDestroy_v2(CUcontext), cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize(void), cuCtxGetCurrent(CUcontext *);
CUresult cuModuleLoadData(CUmodule *, const void *), cuModuleUnload(CUmodule);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t), cuMemFree_v2(CUdeviceptr), cuMemAllocHost_v2(void **, size_t);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t), cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream), cuMemsetD32_v2(CUdeviceptr, unsigned, size_t);
CUresult cuStreamCreate(CUstream *, unsigned), cuStreamDestroy_v2(CUstream), cuStreamSynchronize(CUstream);
CUresult cuStreamQuery(CUstream), cuStreamQuery_ptsz(CUstream), cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuEventCreate(CUevent *, unsigned), cuEventRecord(CUevent, CUstream), cuEventSynchronize(CUevent);
CUresult cuEventQuery(CUevent), cuEventElapsedTime(float *, CUevent, CUevent), cuEventDestroy_v2(CUevent);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                        void **, void **);
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             CUstream, void **, void **);
CUresult cuLaunchHostFunc(CUstream, void (*)(void *), void *);
CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);
CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned);
CUresult cuStreamBeginCapture_v2(CUstream, int), cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long), cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphDestroy(CUgraph), cuGraphExecDestroy(CUgraphExec), cuGraphGetNodes(CUgraph, CUgraphNode *, size_t *);
CUresult cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *);

typedef void (*BufferRequest)(uint8_t **, size_t *, size_t *);
typedef void (*BufferComplete)(CUcontext, uint32_t, uint8_t *, size_t, size_t);
typedef void (*Callback)(void *, int, uint32_t, const void *);
unsigned cuptiSubscribe(void **, Callback, void *), cuptiUnsubscribe(void *);
unsigned cuptiEnableCallback(uint32_t, void *, int, uint32_t), cuptiEnableDomain(uint32_t, void *, int);
unsigned cuptiActivityEnable(int), cuptiActivityDisable(int);
unsigned cuptiActivityRegisterCallbacks(BufferRequest, BufferComplete), cuptiActivityFlushAll(uint32_t);
unsigned cuptiActivityGetNextRecord(uint8_t *, size_t, uint8_t **);
unsigned cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t *);
unsigned cuptiGetTimestamp(uint64_t *), cuptiGetVersion(uint32_t *), cuptiFinalize(void);
unsigned cuptiActivityRegisterTimestampCallback(uint64_t (*)(void));
unsigned cuptiGetGraphExecId(CUgraphExec, uint32_t *), cuptiGetContextId(CUcontext, uint32_t *);
unsigned cuptiGetStreamId(CUcontext, CUstream, uint32_t *);

enum { MEMCPY = 1, MEMSET = 2, MEMCPY2 = 22, CONCURRENT_KERNEL = 10, GRAPH_TRACE = 51 };
enum { DRIVER_API = 1, CBID_LAUNCH_KERNEL = 307 };

#define FAIL(...)                                                                                                     \
    do {                                                                                                              \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                               \
        fprintf(stderr, __VA_ARGS__);                                                                                 \
        fprintf(stderr, "\n");                                                                                        \
        exit(1);                                                                                                      \
    } while (0)
#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) FAIL("not so: %s", #condition);                                                             \
    } while (0)
/* Both sides as unsigned 64-bit numbers. */
#define EQ(seen, wanted)                                                                                              \
    do {                                                                                                              \
        unsigned long long seen_ = (unsigned long long)(seen), wanted_ = (unsigned long long)(wanted);                \
        if (seen_ != wanted_) FAIL("%s is %llu, not %llu", #seen, seen_, wanted_);                                    \
    } while (0)
#define OK(call) EQ(call, 0)

static const char PTX[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".visible .entry brief() {\n // sim.duration_ns = 5000\n // sim.registers = 40\n"
                          " .shared .b8 tile[256];\n ret; }\n"
                          ".visible .entry lengthy() {\n // sim.duration_ns = 200000000\n ret; }\n"
                          ".visible .entry takes(.param .u64 p, .param .u32 n) { ret; }\n";
enum { BRIEF_NS = 5000, LENGTHY_NS = 200000000 };

static CUdevice device;
static CUcontext context;
static CUmodule module;
static CUfunction brief, lengthy, takes;

static inline void start(void)
{
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, PTX));
    OK(cuModuleGetFunction(&brief, module, "brief"));
    OK(cuModuleGetFunction(&lengthy, module, "lengthy"));
    OK(cuModuleGetFunction(&takes, module, "takes"));
}

static inline CUresult launch(CUfunction function, CUstream stream)
{
    return cuLaunchKernel(function, 2, 3, 4, 32, 2, 1, 0, stream, NULL, NULL);
}

static inline uint64_t host_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Fields of records by offset. */
static inline uint32_t word(const uint8_t *record, int at)
{
    uint32_t value;
    memcpy(&value, record + at, 4);
    return value;
}

static inline uint64_t quad(const uint8_t *record, int at)
{
    uint64_t value;
    memcpy(&value, record + at, 8);
    return value;
}

/* A client that copies all records, each into 256 bytes, in the order of delivery. */
enum { BUFFER_BYTES = 4096, MOST_RECORDS = 100000 };
static uint8_t (*records)[256];
static size_t record_count, buffers_requested, buffers_completed;
static pthread_t completing_thread;

static inline void give_buffer(uint8_t **buffer, size_t *bytes, size_t *most)
{
    __atomic_fetch_add(&buffers_requested, 1, __ATOMIC_RELAXED);
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *bytes = BUFFER_BYTES;
    *most = 0;
}

static inline size_t size_of(uint32_t kind)
{
    switch (kind) {
    case MEMSET: return 88;
    case MEMCPY: case MEMCPY2: return 96;
    case GRAPH_TRACE: return 56;
    default: return 216;
    }
}

static inline void take_buffer(CUcontext of, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
    (void)of, (void)stream;
    EQ(bytes, BUFFER_BYTES);
    completing_thread = pthread_self();
    /* Whoever flushes completes buffers, too. */
    __atomic_fetch_add(&buffers_completed, 1, __ATOMIC_RELAXED);
    uint8_t *record = NULL;
    unsigned status;
    while ((status = cuptiActivityGetNextRecord(buffer, valid, &record)) == 0) {
        CHECK(record_count < MOST_RECORDS);
        memcpy(records[record_count++], record, size_of(word(record, 0)));
    }
    EQ(status, 12); /* The end. */
    free(buffer);
}

static inline void start_client(void)
{
    records = calloc(MOST_RECORDS, sizeof *records);
    OK(cuptiActivityRegisterCallbacks(give_buffer, take_buffer));
}

/* The only record of a kind. */
static inline const uint8_t *only(uint32_t kind)
{
    const uint8_t *found = NULL;
    for (size_t i = 0; i < record_count; i++) {
        if (word(records[i], 0) == kind) {
            CHECK(found == NULL);
            found = records[i];
        }
    }
    CHECK(found != NULL);
    return found;
}
#endif
