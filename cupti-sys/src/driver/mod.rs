//! The CUDA driver API: handles, structs, enumerations and the signatures of its functions.
//!
//! `PFN_name_vNNNNN` is the signature of the variant that `cuGetProcAddress` returns from that CUDA version
//! on; `_ptsz` and `_ptds` mark the per-thread-default-stream forms. Which symbol exports which variant is in
//! `facts/driver_abi.txt`. Enumerations are newtypes around integers, so that values from newer drivers are
//! harmless.

#[allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unnecessary_transmutes,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::indexing_slicing,
    clippy::undocumented_unsafe_blocks
)]
mod generated;

pub use generated::*;

/// The handle by which a program names the legacy default stream explicitly; NULL also means it, or the
/// per-thread one, depending on the function's flavour.
pub const CU_STREAM_LEGACY: CUstream = core::ptr::without_provenance_mut(1);

/// The handle by which a program names its thread's own default stream explicitly.
pub const CU_STREAM_PER_THREAD: CUstream = core::ptr::without_provenance_mut(2);
