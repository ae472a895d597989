//! A traced process's side of the wire: session, rings, threads, fork, definitions, losses.
//!
//! It runs inside somebody else's program and knows no vendor's API: `interpose` hooks CUDA
//! through it, other injected libraries can do the same. Three rules follow from where it runs:
//!
//! * Nothing here panics, and nothing on the path of an event locks, allocates or makes a
//!   system call. First sights (a thread's first event, a name's first use) may map memory.
//! * Memory that was handed out is never unmapped: some thread may still be about to write it.
//! * When something fails, tracing goes off or thinner and says so; the program goes on.
//!
//! | file | noun |
//! |---|---|
//! | `clock` | ticks, and readings of all clocks at one moment |
//! | `memory` | anonymous mappings that only grow |
//! | `segment` | the sealed memory file and its layout |
//! | `address_space` | what a limit leaves of it |
//! | `descriptor` | a descriptor of ours, and the check that it still is |
//! | `socket` | the session socket: messages with descriptors beside them |
//! | `ownership` | whether a session is this user's |
//! | `connection` | the session's socket now, and the next one if another collector takes over |
//! | `rings` | a session's rings: taken, given back, more of them |
//! | `session` | start and end of a session; its one current instance |
//! | `early_calls` | how many calls came before the session was there |
//! | `fork` | how a forked child notices |
//! | `held_back` | signals that wait while the C library works for us |
//! | `thread` | a thread's slot: guard, ring, cost samples |
//! | `on_full` | what a thread does whose ring is full |
//! | `handles` | lock-free handle → definition id |
//! | `system` | system calls without the C library, whose functions anybody may wrap |
//! | `service` | the one thread of our own |
//! | `collector_process` | starting the collector when nobody did |
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod address_space;
pub mod clock;
pub mod collector_process;
pub mod connection;
pub mod descriptor;
pub mod early_calls;
pub mod fork;
pub mod handles;
pub mod held_back;
pub mod loader;
pub mod memory;
pub mod on_full;
pub mod ownership;
pub mod rings;
pub mod segment;
pub mod service;
pub mod session;
pub mod socket;
pub mod stderr;
pub mod system;
pub mod thread;
pub mod untraced;
