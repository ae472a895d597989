//! Which function of CUDA's runtime calls a function of the driver.
//!
//! The hooks see the driver only, and nsys's rules look for the runtime's names. A process counts as one that
//! uses the runtime if it loaded code by `cuLibraryLoadData`: the runtime does so from CUDA 12 on. Its calls
//! get the runtime's names, but for launches of kernels that it loaded by itself as modules, as Triton does.

/// The driver's names without version and stream suffixes, and the runtime's with the version that nsys adds:
/// of its first release with that interface.
pub const RUNTIME_NAMES: [(&str, &str); 63] = [
    ("cuCtxSynchronize", "cudaDeviceSynchronize_v3020"),
    ("cuEventCreate", "cudaEventCreateWithFlags_v3020"),
    ("cuEventQuery", "cudaEventQuery_v3020"),
    ("cuEventRecord", "cudaEventRecord_v3020"),
    ("cuEventRecordWithFlags", "cudaEventRecordWithFlags_v11010"),
    ("cuEventSynchronize", "cudaEventSynchronize_v3020"),
    ("cuGraphDestroy", "cudaGraphDestroy_v10000"),
    ("cuGraphExecDestroy", "cudaGraphExecDestroy_v10000"),
    ("cuGraphExecUpdate", "cudaGraphExecUpdate_v10020"),
    ("cuGraphInstantiateWithFlags", "cudaGraphInstantiateWithFlags_v11040"),
    ("cuGraphLaunch", "cudaGraphLaunch_v10000"),
    ("cuLaunchCooperativeKernel", "cudaLaunchCooperativeKernel_v9000"),
    ("cuLaunchHostFunc", "cudaLaunchHostFunc_v10000"),
    ("cuLaunchKernel", "cudaLaunchKernel_v7000"),
    ("cuLaunchKernelEx", "cudaLaunchKernelExC_v11060"),
    ("cuMemAlloc", "cudaMalloc_v3020"),
    ("cuMemAllocAsync", "cudaMallocAsync_v11020"),
    ("cuMemAllocFromPoolAsync", "cudaMallocFromPoolAsync_v11020"),
    ("cuMemAllocHost", "cudaMallocHost_v3020"),
    ("cuMemAllocManaged", "cudaMallocManaged_v6000"),
    ("cuMemAllocPitch", "cudaMallocPitch_v3020"),
    ("cuMemFree", "cudaFree_v3020"),
    ("cuMemFreeAsync", "cudaFreeAsync_v11020"),
    ("cuMemFreeHost", "cudaFreeHost_v3020"),
    ("cuMemHostAlloc", "cudaHostAlloc_v3020"),
    ("cuMemHostRegister", "cudaHostRegister_v4000"),
    ("cuMemHostUnregister", "cudaHostUnregister_v4000"),
    ("cuMemPrefetchAsync", "cudaMemPrefetchAsync_v8000"),
    ("cuMemcpy", "cudaMemcpy_v3020"),
    ("cuMemcpy2D", "cudaMemcpy2D_v3020"),
    ("cuMemcpy2DAsync", "cudaMemcpy2DAsync_v3020"),
    ("cuMemcpy2DUnaligned", "cudaMemcpy2D_v3020"),
    ("cuMemcpy3D", "cudaMemcpy3D_v3020"),
    ("cuMemcpy3DAsync", "cudaMemcpy3DAsync_v3020"),
    ("cuMemcpyAsync", "cudaMemcpyAsync_v3020"),
    ("cuMemcpyDtoD", "cudaMemcpy_v3020"),
    ("cuMemcpyDtoDAsync", "cudaMemcpyAsync_v3020"),
    ("cuMemcpyDtoH", "cudaMemcpy_v3020"),
    ("cuMemcpyDtoHAsync", "cudaMemcpyAsync_v3020"),
    ("cuMemcpyHtoD", "cudaMemcpy_v3020"),
    ("cuMemcpyHtoDAsync", "cudaMemcpyAsync_v3020"),
    ("cuMemcpyPeer", "cudaMemcpyPeer_v4000"),
    ("cuMemcpyPeerAsync", "cudaMemcpyPeerAsync_v4000"),
    ("cuMemsetD16", "cudaMemset_v3020"),
    ("cuMemsetD16Async", "cudaMemsetAsync_v3020"),
    ("cuMemsetD2D16", "cudaMemset2D_v3020"),
    ("cuMemsetD2D16Async", "cudaMemset2DAsync_v3020"),
    ("cuMemsetD2D32", "cudaMemset2D_v3020"),
    ("cuMemsetD2D32Async", "cudaMemset2DAsync_v3020"),
    ("cuMemsetD2D8", "cudaMemset2D_v3020"),
    ("cuMemsetD2D8Async", "cudaMemset2DAsync_v3020"),
    ("cuMemsetD32", "cudaMemset_v3020"),
    ("cuMemsetD32Async", "cudaMemsetAsync_v3020"),
    ("cuMemsetD8", "cudaMemset_v3020"),
    ("cuMemsetD8Async", "cudaMemsetAsync_v3020"),
    ("cuStreamBeginCapture", "cudaStreamBeginCapture_v10000"),
    ("cuStreamCreate", "cudaStreamCreateWithFlags_v5000"),
    ("cuStreamCreateWithPriority", "cudaStreamCreateWithPriority_v5050"),
    ("cuStreamDestroy", "cudaStreamDestroy_v5050"),
    ("cuStreamEndCapture", "cudaStreamEndCapture_v10000"),
    ("cuStreamQuery", "cudaStreamQuery_v3020"),
    ("cuStreamSynchronize", "cudaStreamSynchronize_v3020"),
    ("cuStreamWaitEvent", "cudaStreamWaitEvent_v3020"),
];

/// The call by which the runtime loads code.
pub const LOADS_LIBRARY: &str = "cuLibraryLoadData";

/// The runtime's name for what calls that driver function; `None` if there is no such function, or several.
pub fn runtime_name(driver: &str) -> Option<&'static str> {
    let plain = driver.strip_suffix("_ptsz").or_else(|| driver.strip_suffix("_ptds")).unwrap_or(driver);
    let plain = match plain.rsplit_once("_v") {
        Some((name, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => plain,
    };
    let at = RUNTIME_NAMES.binary_search_by(|(known, _)| (*known).cmp(plain)).ok()?;
    RUNTIME_NAMES.get(at).map(|(_, name)| *name)
}
