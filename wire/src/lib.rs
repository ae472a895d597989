//! The shared format between a traced process and the collector.
//!
//! Everything that crosses shared memory or the session socket is defined here and nowhere
//! else: segments, rings, cells, events, definitions, counters, the control block and the
//! handshake. The crate knows no vendor's API, starts no thread, opens no file and allocates
//! nothing; `producer` writes through it, `collector` reads through it. `docs/FORMAT.md` is
//! the same format in prose and changes in the same commit; `tests/format` compares the two.
//!
//! Three rules hold for every module:
//!
//! * **Fixed width, little endian.** Sizes and offsets are asserted at compile time.
//! * **The other end is hostile.** A reader copies a value out of shared memory, then checks
//!   the copy, then uses the copy. Shared words are only touched through atomics.
//! * **Append only.** Unknown kinds are skipped by their length; known kinds grow at the end.
#![cfg_attr(not(any(test, loom)), no_std)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

#[cfg(target_endian = "big")]
compile_error!("the format is little endian and shared words are touched as they stand");

pub mod atomic;
pub mod block;
pub mod budget;
pub mod call;
pub mod caller;
pub mod capture_range;
pub mod cell;
pub mod clock;
pub mod control;
pub mod counted;
pub mod counter;
pub mod definition;
pub mod device;
pub mod graph;
pub mod handshake;
pub mod range;
pub mod reported;
pub mod ring;
pub mod run_settings;
pub mod segment;
pub mod windows;

/// Major version: readers refuse any other. Bumped when an existing field changes meaning.
pub const VERSION_MAJOR: u16 = 1;
/// Minor version: bumped when a kind or a trailing field is added; older readers skip it.
pub const VERSION_MINOR: u16 = 5;
/// The version word in segments, handshakes and trace files.
pub const VERSION: u32 = ((VERSION_MAJOR as u32) << 16) | VERSION_MINOR as u32;

/// The major half of a version word.
pub const fn major_of(version: u32) -> u16 {
    (version >> 16) as u16
}
