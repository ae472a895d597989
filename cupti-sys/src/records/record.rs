//! A record of any kind, told apart by its first field.

use super::{GraphTraceRecord, KernelRecord, MemcpyPtoPRecord, MemcpyRecord, MemsetRecord};
use crate::cupti::{ApiVersion, CUpti_ActivityKind};

/// A record by its kind. Each holds a pointer, so this is as cheap to pass on as the record's address.
#[derive(Clone, Copy)]
pub enum Record<'a> {
    Kernel(KernelRecord<'a>),
    Memcpy(MemcpyRecord<'a>),
    MemcpyPtoP(MemcpyPtoPRecord<'a>),
    Memset(MemsetRecord<'a>),
    GraphTrace(GraphTraceRecord<'a>),
    /// A kind that is not read here.
    Other(CUpti_ActivityKind),
}

impl<'a> Record<'a> {
    /// Reads the record at `start`, whatever its kind.
    ///
    /// # Safety
    /// `start` must point to a record, as `cuptiActivityGetNextRecord` returns it, that a CUPTI of exactly
    /// `version`, at least [`ApiVersion::OLDEST`], wrote, and that stays as it is for `'a`. It need not be
    /// aligned.
    pub unsafe fn new(start: *const u8, version: ApiVersion) -> Self {
        // SAFETY: every record starts with its kind. Each reader is given a record of its own kind, and the
        // caller vouches for the rest.
        unsafe {
            match start.cast::<CUpti_ActivityKind>().read_unaligned() {
                CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_KERNEL
                | CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL => {
                    Self::Kernel(KernelRecord::new(start, version))
                }
                CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY => {
                    Self::Memcpy(MemcpyRecord::new(start, version))
                }
                CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY2 => {
                    Self::MemcpyPtoP(MemcpyPtoPRecord::new(start, version))
                }
                CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMSET => {
                    Self::Memset(MemsetRecord::new(start, version))
                }
                CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE => {
                    Self::GraphTrace(GraphTraceRecord::new(start, version))
                }
                other => Self::Other(other),
            }
        }
    }
}
