//! The guest: another client of CUPTI in the process, which is given a CUPTI of its own.
//!
//! CUPTI has one subscriber, one pair of buffer callbacks and one clock. torch.profiler, Proton or a
//! program's own client wants all three, and so does the tracer. Therefore clients' calls come to us first:
//! we export CUPTI's names, and look-ups of them return our functions. A client gets a subscription,
//! callbacks, kinds, a clock and buffers that behave like the real ones, which stay the tracer's. It sees
//! exactly what it enabled, for as long as it had it enabled.
//!
//! | file | noun |
//! |---|---|
//! | `exports` | the names that clients link to and look up, and the target of each call |
//! | `calls` | the implementation of those functions for a guest |
//! | `subscription` | the guest's callback |
//! | `windows` | the launches during which the guest had a kind enabled |
//! | `delivery` | copies records into the guest's buffers |
//! | `clock` | converts CUPTI's times to the guest's clock |
//! | `times` | offsets of the times in a record |
//! | `own_calls` | our own driver calls, hidden from the guest |
//! | `second_library` | a client that brings its own libcupti |
//!
//! A client that cannot be a guest (the V2 interface, a newer libcupti of its own) gets CUPTI whole unless a
//! guest is present: the tracer leaves CUPTI for good and goes on with the hooks.
//!
//! Differences that a guest may notice: kernels are never serialised for it (kind KERNEL is served from
//! CONCURRENT_KERNEL's records), a kind enabled for one context is enabled for all, and attributes of
//! buffers that are not its own keep their values.

mod calls;
mod clock;
mod delivery;
pub mod exports;
pub mod own_calls;
pub mod second_library;
pub mod subscription;
mod times;
pub mod windows;

pub use delivery::deliver;

/// Whether a client takes activity records, so that kinds unknown to the tracer may belong to it.
pub fn takes_records() -> bool {
    delivery::is_registered()
}

/// Whether a client is present.
pub fn is_present() -> bool {
    subscription::is_there() || delivery::is_registered()
}
