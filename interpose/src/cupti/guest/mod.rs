//! Another client of CUPTI in the process: a guest, which finds a CUPTI of its own.
//!
//! CUPTI has one subscriber, one pair of buffer callbacks and one clock. torch.profiler, Proton or
//! a program's own client wants all three, and so do we. So its calls come to us first (we export
//! CUPTI's names, and look-ups of them are answered with ours), and what it gets behaves like the
//! real thing: a subscription, callbacks, kinds, a clock and buffers, while the real ones stay the
//! tracer's. It sees exactly what it enabled, for as long as it had it enabled.
//!
//! | file | noun |
//! |---|---|
//! | `exports` | the names that clients link and look up, and where each call goes |
//! | `calls` | what each of those functions does for a guest |
//! | `subscription` | the guest's callback |
//! | `windows` | from which launch to which it had a kind enabled |
//! | `delivery` | records into the guest's buffers |
//! | `clock` | CUPTI's times in the guest's clock |
//! | `times` | where the times are in a record |
//! | `own_calls` | our own driver calls, of which no guest hears |
//! | `second_library` | a client that has a libcupti of its own |
//!
//! A client that cannot be a guest (the V2 interface, a newer libcupti of its own) gets CUPTI whole,
//! as long as no guest is there: the tracer leaves it for good and goes on with the hooks.
//!
//! What a guest may notice: kernels are never serialised for it (kind KERNEL is served from
//! CONCURRENT_KERNEL's records), a kind that is enabled for one context is enabled for all, and
//! attributes of buffers that are not its own stay as they are.

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

/// Whether a client takes activity records, so that kinds unknown to the tracer may be its.
pub fn takes_records() -> bool {
    delivery::is_registered()
}

/// Whether a client is there at all.
pub fn is_present() -> bool {
    subscription::is_there() || delivery::is_registered()
}
