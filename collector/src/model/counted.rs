//! Launches that were counted instead of recorded, to keep a budget.

use crate::model::operation::Kernel;

/// The most launches of a process that are taken in: counts come from it, and sums must not overflow.
pub(super) const LAUNCHES_MAX: u64 = 1 << 48;

/// Launches of one kernel on one stream between two moments. None of them is a call or an operation of its
/// own, and none has device times.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CountedLaunches {
    pub process: u32,
    /// Function definition.
    pub function: u32,
    /// What the function's definition says of its kernel: neither grid nor block are known.
    pub kernel: Kernel,
    pub stream: u32,
    /// The ordinal of the stream's device.
    pub device: u32,
    /// On CLOCK_MONOTONIC: the launches were made in between.
    pub begin_ns: u64,
    pub end_ns: u64,
    pub launches: u64,
}
