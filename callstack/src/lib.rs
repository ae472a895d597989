//! What the calling thread is doing: its frames as one stack id, its open ranges, its active span.
//!
//! The crate knows no vendor's API and has no transport: it writes definitions and entries through
//! `producer`. `interpose` asks it at each call; other injected libraries can do the same. It runs
//! inside somebody else's program and follows the three rules of `producer`.
//!
//! | file or folder | content |
//! |---|---|
//! | `stacks` | a call's stack, combined from all its parts, as one number |
//! | `recent` | the stack cache: from a recent fingerprint to a stack id |
//! | `expected` | the stack that a thread probably has next, recognised without a walk |
//! | `python` | the calling thread's Python frames, read in place |
//! | `native` | the calling thread's native frames, read in place |
//! | `torch` | the backward pass of PyTorch that a thread runs a part of |
//! | `ranges` | the ranges that the program marks: those open on each thread, and their names |
//! | `active_span` | the span of another tracer that a thread's work belongs to |
//! | `stack_slot` | this crate's data in a thread's slot |
//! | `read_word` | something that was read, and where |
//! | `fold` | how two numbers become one |
//! | `sum` | a sum over the frames of a stack |
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod active_span;
mod expected;
pub mod fold;
pub mod native;
pub mod python;
pub mod ranges;
mod read_word;
mod recent;
mod stack_slot;
pub mod stacks;
mod sum;
pub mod torch;
