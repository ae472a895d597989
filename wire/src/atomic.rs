//! The one place that decides whether atomics are the processor's or the model checker's.
//!
//! Everything in this crate that is shared between processes uses these names, so that
//! `RUSTFLAGS="--cfg loom" cargo test -p gputrace-wire` explores the same code.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
