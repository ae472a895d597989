//! Calls of one driver entry that failed alike from one stack.

use crate::model::operation::HostCall;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FailureKey {
    pub process: u32,
    /// API definition.
    pub api: u32,
    pub status: u16,
    /// Stack definition, 0 for none.
    pub stack: u32,
}

#[derive(Clone, Debug)]
pub struct Failure {
    pub calls: u64,
    pub first: HostCall,
    /// When the last one returned.
    pub last_ns: u64,
    /// Allocations: the most bytes that were requested.
    pub most_bytes: u64,
    /// Those that succeeded when the thread asked again.
    pub given_later: u64,
    /// The most calls that freed memory in between.
    pub frees_before: u64,
}

impl Failure {
    /// Of which that call is the first one seen, and not counted yet.
    pub(super) fn new(call: &HostCall) -> Failure {
        Failure { calls: 0, first: call.clone(), last_ns: 0, most_bytes: 0, given_later: 0, frees_before: 0 }
    }
}

pub(super) fn end_ns(call: &HostCall) -> u64 {
    call.start_ns.saturating_add(call.duration_ns)
}
