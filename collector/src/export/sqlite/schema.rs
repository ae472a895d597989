//! The tables of nsys that are written, and the rows of those that do not depend on the trace.

/// A table and its columns. Tables without rows are not made, as nsys does.
#[derive(Clone, Copy, Debug)]
pub struct NsysTable {
    pub name: &'static str,
    /// `name TYPE` or `name TYPE NOT NULL`, separated by commas.
    pub columns: &'static str,
}

const fn table(name: &'static str, columns: &'static str) -> NsysTable {
    NsysTable { name, columns }
}

impl NsysTable {
    pub fn column_names(&self) -> impl Iterator<Item = &'static str> {
        self.columns.split(',').filter_map(|column| column.split_whitespace().next())
    }
}

pub const STRINGS: NsysTable = table("StringIds", "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL");

pub const KERNEL: NsysTable = table(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, \
     greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, \
     demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, \
     cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, \
     gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, \
     staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, \
     localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, \
     sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER",
);

pub const MEMCPY: NsysTable = table(
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, \
     greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, \
     bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, \
     srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, \
     migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER",
);

pub const MEMSET: NsysTable = table(
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, \
     greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, \
     value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER",
);

pub const GRAPH_TRACE: NsysTable = table(
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, \
     greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, \
     graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL",
);

pub const SYNCHRONIZATION: NsysTable = table(
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, \
     greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, \
     syncType INTEGER NOT NULL, eventId INTEGER NOT NULL",
);

pub const RUNTIME: NsysTable = table(
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, \
     correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER",
);

pub const CALLCHAINS: NsysTable = table(
    "CUDA_CALLCHAINS",
    "id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL, unresolved INTEGER, \
     originalIP INTEGER, stackDepth INTEGER NOT NULL",
);

pub const MEMORY_USAGE: NsysTable = table(
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, \
     address INTEGER NOT NULL, pc INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER NOT NULL, \
     memoryOperationType INTEGER NOT NULL, name TEXT, correlationId INTEGER, localMemoryPoolAddress INTEGER, \
     localMemoryPoolReleaseThreshold INTEGER, localMemoryPoolSize INTEGER, localMemoryPoolUtilizedSize INTEGER, \
     importedMemoryPoolAddress INTEGER, importedMemoryPoolProcessId INTEGER",
);

pub const NVTX: NsysTable = table(
    "NVTX_EVENTS",
    "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, \
     color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, \
     uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, \
     floatValue REAL, jsonTextId INTEGER, jsonText TEXT",
);

pub const GPU: NsysTable = table(
    "TARGET_INFO_GPU",
    "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, l2CacheSize INTEGER, \
     totalMemory INTEGER, clockRate INTEGER, smCount INTEGER, uuid TEXT, cuDevice INTEGER, \
     threadsPerWarp INTEGER, maxBlocksPerSm INTEGER, maxThreadsPerBlock INTEGER, maxRegistersPerBlock INTEGER, \
     maxShmemPerBlockOptin INTEGER, maxShmemPerSm INTEGER, maxRegistersPerSm INTEGER, computeMajor INTEGER, \
     computeMinor INTEGER",
);

pub const CONTEXT: NsysTable = table(
    "TARGET_INFO_CUDA_CONTEXT_INFO",
    "nullStreamId INTEGER NOT NULL, hwId INTEGER NOT NULL, vmId INTEGER NOT NULL, processId INTEGER NOT NULL, \
     deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, parentContextId INTEGER, isGreenContext INTEGER",
);

pub const SESSION_START: NsysTable = table("TARGET_INFO_SESSION_START_TIME", "utcEpochNs INTEGER NOT NULL");

pub const ANALYSIS: NsysTable = table(
    "ANALYSIS_DETAILS",
    "globalVid INTEGER NOT NULL, duration INTEGER NOT NULL, startTime INTEGER NOT NULL, stopTime INTEGER NOT NULL",
);

pub const PROCESSES: NsysTable = table("PROCESSES", "globalPid INTEGER, pid INTEGER, name TEXT");

pub const THREAD_NAMES: NsysTable =
    table("ThreadNames", "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER");

/// Notices of the exporter: what the schema has no place for.
pub const DIAGNOSTICS: NsysTable = table(
    "DIAGNOSTIC_EVENT",
    "timestamp INTEGER NOT NULL, timestampType INTEGER NOT NULL, source INTEGER NOT NULL, \
     severity INTEGER NOT NULL, text TEXT NOT NULL, globalPid INTEGER",
);

pub const EXPORT: NsysTable = table("META_DATA_EXPORT", "name TEXT, value TEXT");

/// All of the above, in the order of the document.
pub const TABLES: [&NsysTable; 18] = [
    &KERNEL,
    &MEMCPY,
    &MEMSET,
    &GRAPH_TRACE,
    &SYNCHRONIZATION,
    &RUNTIME,
    &CALLCHAINS,
    &MEMORY_USAGE,
    &NVTX,
    &STRINGS,
    &PROCESSES,
    &THREAD_NAMES,
    &GPU,
    &CONTEXT,
    &SESSION_START,
    &ANALYSIS,
    &DIAGNOSTICS,
    &EXPORT,
];

pub const EXPORT_ROWS: [(&str, &str); 4] = [
    ("EXPORT_SCHEMA_VERSION", "3.7.2"),
    ("EXPORT_SCHEMA_VERSION_MAJOR", "3"),
    ("EXPORT_SCHEMA_VERSION_MINOR", "7"),
    ("EXPORT_SCHEMA_VERSION_MICRO", "2"),
];

/// Types of NVTX events.
pub const PUSH_POP: i64 = 59;
pub const START_END: i64 = 60;
pub const DOMAIN: i64 = 75;

/// Event classes of calls.
pub const BY_RUNTIME: i64 = 0;
pub const BY_DRIVER: i64 = 1;

/// A table of a column's values: number, name, label.
pub type Enumeration = (&'static str, &'static [(i64, &'static str, &'static str)]);

pub const ENUMERATIONS: [Enumeration; 6] = [
    (
        "ENUM_CUDA_MEMCPY_OPER",
        &[
            (0, "CUDA_MEMCPY_KIND_UNKNOWN", "Unknown"),
            (1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device"),
            (2, "CUDA_MEMCPY_KIND_DTOH", "Device-to-Host"),
            (8, "CUDA_MEMCPY_KIND_DTOD", "Device-to-Device"),
            (9, "CUDA_MEMCPY_KIND_HTOH", "Host-to-Host"),
            (10, "CUDA_MEMCPY_KIND_PTOP", "Peer-to-Peer"),
        ],
    ),
    (
        "ENUM_CUDA_MEM_KIND",
        &[
            (0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable"),
            (1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned"),
            (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device"),
            (3, "CUDA_MEMOPR_MEMORY_KIND_ARRAY", "Array"),
            (4, "CUDA_MEMOPR_MEMORY_KIND_MANAGED", "Managed"),
            (5, "CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC", "Device Static"),
            (6, "CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC", "Managed Static"),
        ],
    ),
    (
        "ENUM_CUDA_DEV_MEM_EVENT_OPER",
        &[
            (0, "CUDA_MEMORY_OPERATION_TYPE_ALLOCATION", "Allocation"),
            (1, "CUDA_MEMORY_OPERATION_TYPE_DEALLOCATION", "Deallocation"),
        ],
    ),
    (
        "ENUM_CUPTI_SYNC_TYPE",
        &[
            (1, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE", "Event synchronize"),
            (2, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT", "Stream wait event"),
            (3, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE", "Stream synchronize"),
            (4, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE", "Context synchronize"),
        ],
    ),
    (
        "ENUM_NSYS_EVENT_CLASS",
        &[
            (BY_RUNTIME, "TRACE_PROCESS_EVENT_CUDA_RUNTIME", "CUDA runtime"),
            (BY_DRIVER, "TRACE_PROCESS_EVENT_CUDA_DRIVER", "CUDA driver"),
        ],
    ),
    (
        "ENUM_NSYS_EVENT_TYPE",
        &[
            (PUSH_POP, "NvtxPushPopRange", "NVTX push/pop range"),
            (START_END, "NvtxStartEndRange", "NVTX start/end range"),
            (DOMAIN, "NvtxDomainCreate", "NVTX domain create"),
        ],
    ),
];
