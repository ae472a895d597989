//! The driver's result codes: numbers, names, and a few words for each.
//!
//! Owns the one type in which the engine reports failure. Knows nothing of what failed.

use std::ffi::CStr;

/// A `CUresult` other than success, or success where a table needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(transparent)]
pub struct Code(pub u32);

/// What every engine call returns.
pub type Result<T = ()> = std::result::Result<T, Code>;

macro_rules! codes {
    ($($value:literal $short:ident $name:literal $words:literal)*) => {
        impl Code { $(pub const $short: Code = Code($value);)* }

        /// Every code that the driver of this version knows.
        pub const CODES: &[(Code, &CStr, &CStr)] = &[$((Code($value), $name, $words)),*];
    };
}

impl Code {
    /// The enumerator's name, as `cuGetErrorName` gives it.
    pub fn name(self) -> Option<&'static CStr> {
        CODES.iter().find(|row| row.0 == self).map(|row| row.1)
    }

    /// A few words, as `cuGetErrorString` gives them.
    pub fn words(self) -> Option<&'static CStr> {
        CODES.iter().find(|row| row.0 == self).map(|row| row.2)
    }
}

codes! {
    0 SUCCESS c"CUDA_SUCCESS" c"no error"
    1 INVALID_VALUE c"CUDA_ERROR_INVALID_VALUE" c"invalid argument"
    2 OUT_OF_MEMORY c"CUDA_ERROR_OUT_OF_MEMORY" c"out of memory"
    3 NOT_INITIALIZED c"CUDA_ERROR_NOT_INITIALIZED" c"initialization error"
    4 DEINITIALIZED c"CUDA_ERROR_DEINITIALIZED" c"deinitialized"
    5 PROFILER_DISABLED c"CUDA_ERROR_PROFILER_DISABLED" c"profiler disabled"
    6 PROFILER_NOT_INITIALIZED c"CUDA_ERROR_PROFILER_NOT_INITIALIZED" c"profiler not initialized"
    7 PROFILER_ALREADY_STARTED c"CUDA_ERROR_PROFILER_ALREADY_STARTED" c"profiler already started"
    8 PROFILER_ALREADY_STOPPED c"CUDA_ERROR_PROFILER_ALREADY_STOPPED" c"profiler already stopped"
    34 STUB_LIBRARY c"CUDA_ERROR_STUB_LIBRARY" c"stub library"
    36 CALL_REQUIRES_NEWER_DRIVER c"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER" c"call requires newer driver"
    46 DEVICE_UNAVAILABLE c"CUDA_ERROR_DEVICE_UNAVAILABLE" c"device unavailable"
    100 NO_DEVICE c"CUDA_ERROR_NO_DEVICE" c"no device"
    101 INVALID_DEVICE c"CUDA_ERROR_INVALID_DEVICE" c"invalid device"
    102 DEVICE_NOT_LICENSED c"CUDA_ERROR_DEVICE_NOT_LICENSED" c"device not licensed"
    200 INVALID_IMAGE c"CUDA_ERROR_INVALID_IMAGE" c"invalid image"
    201 INVALID_CONTEXT c"CUDA_ERROR_INVALID_CONTEXT" c"invalid device context"
    202 CONTEXT_ALREADY_CURRENT c"CUDA_ERROR_CONTEXT_ALREADY_CURRENT" c"context already current"
    205 MAP_FAILED c"CUDA_ERROR_MAP_FAILED" c"map failed"
    206 UNMAP_FAILED c"CUDA_ERROR_UNMAP_FAILED" c"unmap failed"
    207 ARRAY_IS_MAPPED c"CUDA_ERROR_ARRAY_IS_MAPPED" c"array is mapped"
    208 ALREADY_MAPPED c"CUDA_ERROR_ALREADY_MAPPED" c"already mapped"
    209 NO_BINARY_FOR_GPU c"CUDA_ERROR_NO_BINARY_FOR_GPU" c"no binary for gpu"
    210 ALREADY_ACQUIRED c"CUDA_ERROR_ALREADY_ACQUIRED" c"already acquired"
    211 NOT_MAPPED c"CUDA_ERROR_NOT_MAPPED" c"not mapped"
    212 NOT_MAPPED_AS_ARRAY c"CUDA_ERROR_NOT_MAPPED_AS_ARRAY" c"not mapped as array"
    213 NOT_MAPPED_AS_POINTER c"CUDA_ERROR_NOT_MAPPED_AS_POINTER" c"not mapped as pointer"
    214 ECC_UNCORRECTABLE c"CUDA_ERROR_ECC_UNCORRECTABLE" c"ecc uncorrectable"
    215 UNSUPPORTED_LIMIT c"CUDA_ERROR_UNSUPPORTED_LIMIT" c"unsupported limit"
    216 CONTEXT_ALREADY_IN_USE c"CUDA_ERROR_CONTEXT_ALREADY_IN_USE" c"context already in use"
    217 PEER_ACCESS_UNSUPPORTED c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED" c"peer access unsupported"
    218 INVALID_PTX c"CUDA_ERROR_INVALID_PTX" c"invalid ptx"
    219 INVALID_GRAPHICS_CONTEXT c"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT" c"invalid graphics context"
    220 NVLINK_UNCORRECTABLE c"CUDA_ERROR_NVLINK_UNCORRECTABLE" c"nvlink uncorrectable"
    221 JIT_COMPILER_NOT_FOUND c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND" c"jit compiler not found"
    222 UNSUPPORTED_PTX_VERSION c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION" c"unsupported ptx version"
    223 JIT_COMPILATION_DISABLED c"CUDA_ERROR_JIT_COMPILATION_DISABLED" c"jit compilation disabled"
    224 UNSUPPORTED_EXEC_AFFINITY c"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY" c"unsupported exec affinity"
    225 UNSUPPORTED_DEVSIDE_SYNC c"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC" c"unsupported devside sync"
    226 CONTAINED c"CUDA_ERROR_CONTAINED" c"contained"
    300 INVALID_SOURCE c"CUDA_ERROR_INVALID_SOURCE" c"invalid source"
    301 FILE_NOT_FOUND c"CUDA_ERROR_FILE_NOT_FOUND" c"file not found"
    302 SHARED_OBJECT_SYMBOL_NOT_FOUND c"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND" c"shared object symbol not found"
    303 SHARED_OBJECT_INIT_FAILED c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED" c"shared object init failed"
    304 OPERATING_SYSTEM c"CUDA_ERROR_OPERATING_SYSTEM" c"operating system"
    400 INVALID_HANDLE c"CUDA_ERROR_INVALID_HANDLE" c"invalid resource handle"
    401 ILLEGAL_STATE c"CUDA_ERROR_ILLEGAL_STATE" c"illegal state"
    402 LOSSY_QUERY c"CUDA_ERROR_LOSSY_QUERY" c"lossy query"
    500 NOT_FOUND c"CUDA_ERROR_NOT_FOUND" c"named symbol not found"
    600 NOT_READY c"CUDA_ERROR_NOT_READY" c"device not ready"
    700 ILLEGAL_ADDRESS c"CUDA_ERROR_ILLEGAL_ADDRESS" c"illegal address"
    701 LAUNCH_OUT_OF_RESOURCES c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" c"launch out of resources"
    702 LAUNCH_TIMEOUT c"CUDA_ERROR_LAUNCH_TIMEOUT" c"launch timeout"
    703 LAUNCH_INCOMPATIBLE_TEXTURING c"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING" c"launch incompatible texturing"
    704 PEER_ACCESS_ALREADY_ENABLED c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED" c"peer access already enabled"
    705 PEER_ACCESS_NOT_ENABLED c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED" c"peer access not enabled"
    708 PRIMARY_CONTEXT_ACTIVE c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE" c"primary context active"
    709 CONTEXT_IS_DESTROYED c"CUDA_ERROR_CONTEXT_IS_DESTROYED" c"context is destroyed"
    710 ASSERT c"CUDA_ERROR_ASSERT" c"assert"
    711 TOO_MANY_PEERS c"CUDA_ERROR_TOO_MANY_PEERS" c"too many peers"
    712 HOST_MEMORY_ALREADY_REGISTERED c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" c"host memory already registered"
    713 HOST_MEMORY_NOT_REGISTERED c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" c"host memory not registered"
    714 HARDWARE_STACK_ERROR c"CUDA_ERROR_HARDWARE_STACK_ERROR" c"hardware stack error"
    715 ILLEGAL_INSTRUCTION c"CUDA_ERROR_ILLEGAL_INSTRUCTION" c"illegal instruction"
    716 MISALIGNED_ADDRESS c"CUDA_ERROR_MISALIGNED_ADDRESS" c"misaligned address"
    717 INVALID_ADDRESS_SPACE c"CUDA_ERROR_INVALID_ADDRESS_SPACE" c"invalid address space"
    718 INVALID_PC c"CUDA_ERROR_INVALID_PC" c"invalid pc"
    719 LAUNCH_FAILED c"CUDA_ERROR_LAUNCH_FAILED" c"launch failed"
    720 COOPERATIVE_LAUNCH_TOO_LARGE c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE" c"cooperative launch too large"
    721 TENSOR_MEMORY_LEAK c"CUDA_ERROR_TENSOR_MEMORY_LEAK" c"tensor memory leak"
    800 NOT_PERMITTED c"CUDA_ERROR_NOT_PERMITTED" c"not permitted"
    801 NOT_SUPPORTED c"CUDA_ERROR_NOT_SUPPORTED" c"not supported"
    802 SYSTEM_NOT_READY c"CUDA_ERROR_SYSTEM_NOT_READY" c"system not ready"
    803 SYSTEM_DRIVER_MISMATCH c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" c"system driver mismatch"
    804 COMPAT_NOT_SUPPORTED_ON_DEVICE c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE" c"compat not supported on device"
    805 MPS_CONNECTION_FAILED c"CUDA_ERROR_MPS_CONNECTION_FAILED" c"mps connection failed"
    806 MPS_RPC_FAILURE c"CUDA_ERROR_MPS_RPC_FAILURE" c"mps rpc failure"
    807 MPS_SERVER_NOT_READY c"CUDA_ERROR_MPS_SERVER_NOT_READY" c"mps server not ready"
    808 MPS_MAX_CLIENTS_REACHED c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED" c"mps max clients reached"
    809 MPS_MAX_CONNECTIONS_REACHED c"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED" c"mps max connections reached"
    810 MPS_CLIENT_TERMINATED c"CUDA_ERROR_MPS_CLIENT_TERMINATED" c"mps client terminated"
    811 CDP_NOT_SUPPORTED c"CUDA_ERROR_CDP_NOT_SUPPORTED" c"cdp not supported"
    812 CDP_VERSION_MISMATCH c"CUDA_ERROR_CDP_VERSION_MISMATCH" c"cdp version mismatch"
    900 STREAM_CAPTURE_UNSUPPORTED c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" c"stream capture unsupported"
    901 STREAM_CAPTURE_INVALIDATED c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" c"stream capture invalidated"
    902 STREAM_CAPTURE_MERGE c"CUDA_ERROR_STREAM_CAPTURE_MERGE" c"stream capture merge"
    903 STREAM_CAPTURE_UNMATCHED c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED" c"stream capture unmatched"
    904 STREAM_CAPTURE_UNJOINED c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED" c"stream capture unjoined"
    905 STREAM_CAPTURE_ISOLATION c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION" c"stream capture isolation"
    906 STREAM_CAPTURE_IMPLICIT c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" c"stream capture implicit"
    907 CAPTURED_EVENT c"CUDA_ERROR_CAPTURED_EVENT" c"captured event"
    908 STREAM_CAPTURE_WRONG_THREAD c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD" c"stream capture wrong thread"
    909 TIMEOUT c"CUDA_ERROR_TIMEOUT" c"timeout"
    910 GRAPH_EXEC_UPDATE_FAILURE c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE" c"graph exec update failure"
    911 EXTERNAL_DEVICE c"CUDA_ERROR_EXTERNAL_DEVICE" c"external device"
    912 INVALID_CLUSTER_SIZE c"CUDA_ERROR_INVALID_CLUSTER_SIZE" c"invalid cluster size"
    913 FUNCTION_NOT_LOADED c"CUDA_ERROR_FUNCTION_NOT_LOADED" c"function not loaded"
    914 INVALID_RESOURCE_TYPE c"CUDA_ERROR_INVALID_RESOURCE_TYPE" c"invalid resource type"
    915 INVALID_RESOURCE_CONFIGURATION c"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION" c"invalid resource configuration"
    916 KEY_ROTATION c"CUDA_ERROR_KEY_ROTATION" c"key rotation"
    999 UNKNOWN c"CUDA_ERROR_UNKNOWN" c"unknown"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_numbers() {
        assert_eq!(Code(700).name(), Some(c"CUDA_ERROR_ILLEGAL_ADDRESS"));
        assert_eq!(Code::NOT_READY, Code(600));
        assert_eq!(Code(12345).name(), None);
        assert!(CODES.windows(2).all(|pair| pair[0].0.0 < pair[1].0.0));
        let facts = include_str!("../../cupti-sys/facts/driver_errors.txt");
        for (code, name, _) in CODES.iter().skip(1) {
            let row = format!("\n{} {}\n", code.0, name.to_str().unwrap());
            assert!(facts.contains(&row), "{row}");
        }
    }
}
