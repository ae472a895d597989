//! What the calling thread is doing: its frames as one stack id, its open ranges, its active span.
//!
//! It knows no vendor's API and has no transport: `producer` brings what it defines and writes to
//! the collector. `interpose` asks it at each call; other injected libraries can do the same.
//! It runs inside somebody else's program, by the three rules of `producer`.
//!
//! | file or folder | noun |
//! |---|---|
//! | `stacks` | a call's stack, of all its parts, as one number |
//! | `recent` | which stack was lately known by which number: a table that forgets |
//! | `python` | the calling thread's Python frames, read where they are |
//! | `native` | the calling thread's native frames, read where they are |
//! | `torch` | for which backward pass of PyTorch a thread works |
//! | `ranges` | what the program says it is doing: the threads' open ranges, their names |
//! | `active_span` | the span of another tracer that a thread works for |
//! | `stack_slot` | what all of these keep of a thread |
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod active_span;
pub mod native;
pub mod python;
pub mod ranges;
mod recent;
mod stack_slot;
pub mod stacks;
pub mod torch;
