// Compares the offsets of cupti_min.h with a toolkit's own headers; compiled (never run) where those headers are found.
#include "cupti_min.h"
#include <cuda.h>
#include <cupti.h>

#define SAME(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)
SAME(CUpti_ActivityKernel9, start, KERNEL_START);
SAME(CUpti_ActivityKernel9, end, KERNEL_END);
SAME(CUpti_ActivityKernel9, correlationId, KERNEL_CORRELATION);
SAME(CUpti_ActivityKernel9, name, KERNEL_NAME);
SAME(CUpti_ActivityKernel9, graphNodeId, KERNEL_GRAPH_NODE);
SAME(CUpti_ActivityMemcpy5, copyKind, COPY_KIND);
SAME(CUpti_ActivityMemcpy5, bytes, COPY_BYTES);
SAME(CUpti_ActivityMemcpy5, start, COPY_START);
SAME(CUpti_ActivityMemcpy5, end, COPY_END);
SAME(CUpti_ActivityMemcpy5, correlationId, MEMCPY_CORRELATION);
SAME(CUpti_ActivityMemcpy5, graphNodeId, MEMCPY_GRAPH_NODE);
SAME(CUpti_ActivityMemcpyPtoP4, copyKind, COPY_KIND);
SAME(CUpti_ActivityMemcpyPtoP4, bytes, COPY_BYTES);
SAME(CUpti_ActivityMemcpyPtoP4, correlationId, PEER_CORRELATION);
SAME(CUpti_ActivityMemcpyPtoP4, graphNodeId, PEER_GRAPH_NODE);
SAME(CUpti_ActivityMemset4, bytes, MEMSET_BYTES);
SAME(CUpti_ActivityMemset4, start, MEMSET_START);
SAME(CUpti_ActivityMemset4, end, MEMSET_END);
SAME(CUpti_ActivityMemset4, correlationId, MEMSET_CORRELATION);
SAME(CUpti_ActivityMemset4, graphNodeId, MEMSET_GRAPH_NODE);
SAME(CUpti_ActivityMemory3, memoryOperationType, MEMORY_OPERATION);
SAME(CUpti_ActivityMemory3, memoryKind, MEMORY_KIND);
SAME(CUpti_ActivityMemory3, bytes, MEMORY_BYTES);
SAME(CUpti_ActivityMemory3, memoryPoolConfig, MEMORY_POOL_TYPE);
SAME(CUpti_ActivityAPI, cbid, API_CBID);
SAME(CUpti_ActivityAPI, start, API_START);
SAME(CUpti_ActivityAPI, end, API_END);
SAME(CUpti_ActivityAPI, threadId, API_THREAD);
SAME(CUpti_ActivityAPI, correlationId, API_CORRELATION);
SAME(CUpti_ActivityExternalCorrelation, externalKind, EXTERNAL_KIND);
SAME(CUpti_ActivityExternalCorrelation, externalId, EXTERNAL_ID);
SAME(CUpti_ActivityExternalCorrelation, correlationId, EXTERNAL_CORRELATION);
SAME(CUpti_ActivitySynchronization2, type, SYNCHRONIZATION_TYPE);
SAME(CUpti_CallbackData, functionParams, offsetof(callback_data, params));
SAME(CUpti_CallbackData, symbolName, offsetof(callback_data, symbol_name));
SAME(CUpti_CallbackData, correlationId, offsetof(callback_data, correlation_id));
_Static_assert(CUPTI_ACTIVITY_KIND_MEMCPY == KIND_MEMCPY && CUPTI_ACTIVITY_KIND_MEMSET == KIND_MEMSET, "kinds");
_Static_assert(CUPTI_ACTIVITY_KIND_KERNEL == KIND_KERNEL && CUPTI_ACTIVITY_KIND_MEMCPY2 == KIND_MEMCPY2, "kinds");
_Static_assert(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL == KIND_CONCURRENT_KERNEL, "kinds");
_Static_assert(CUPTI_ACTIVITY_KIND_DRIVER == KIND_DRIVER && CUPTI_ACTIVITY_KIND_RUNTIME == KIND_RUNTIME, "kinds");
_Static_assert(CUPTI_ACTIVITY_KIND_OVERHEAD == KIND_OVERHEAD && CUPTI_ACTIVITY_KIND_SYNCHRONIZATION == KIND_SYNCHRONIZATION, "kinds");
_Static_assert(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION == KIND_EXTERNAL_CORRELATION && CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 == EXTERNAL_CUSTOM0, "kinds");
_Static_assert(CUPTI_CB_DOMAIN_RUNTIME_API == DOMAIN_RUNTIME_API && CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize == CBID_CTX_SYNCHRONIZE, "callbacks");
_Static_assert(CUPTI_CB_DOMAIN_DRIVER_API == DOMAIN_DRIVER_API && CUPTI_API_ENTER == SITE_ENTER, "callbacks");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel == CBID_LAUNCH, "cbid");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz == CBID_LAUNCH_PTSZ, "cbid");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel == CBID_COOPERATIVE, "cbid");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz == CBID_COOPERATIVE_PTSZ, "cbid");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx == CBID_LAUNCH_EX, "cbid");
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz == CBID_LAUNCH_EX_PTSZ, "cbid");
