//! The traced process's side of the transport: session, rings, threads, fork, definitions, losses.
//!
//! The crate runs inside somebody else's program and knows no vendor's API: `interpose` hooks CUDA
//! through it, and other injected libraries can do the same. Three rules follow:
//!
//! * Nothing here panics, and nothing on the path of an event locks, allocates or makes a
//!   system call. A thread's first event and a name's first use may map memory.
//! * Memory that a thread may still write to is never unmapped.
//! * When something fails, tracing is reduced or turned off and reports that; the program goes on.
//!
//! | file | content |
//! |---|---|
//! | `clock` | ticks, and readings of all clocks at one moment |
//! | `memory` | anonymous mappings that only grow |
//! | `segment` | the sealed memory file and its layout |
//! | `address_space` | how much address space a limit leaves |
//! | `descriptor` | a descriptor of ours, and the check that it is still ours |
//! | `socket` | the session socket: messages with descriptors beside them |
//! | `stderr` | one line on standard error, by a raw write |
//! | `untraced` | how a process that cannot join its session reports that |
//! | `ownership` | whether a session belongs to this user |
//! | `connection` | the session's socket now, and the next one if another collector takes over |
//! | `rings` | a session's rings: taking, returning and adding them |
//! | `session` | start and end of a session; its one current instance |
//! | `early_calls` | the number of calls before the session existed |
//! | `loader` | the loader's list of mapped objects, read while no thread forks |
//! | `fork` | how a forked child notices that it is one |
//! | `held_back` | blocks signals while the C library works for us |
//! | `thread` | a thread's slot: guard, ring, cost samples |
//! | `on_full` | what a thread does when its ring is full |
//! | `handles` | lock-free handle → definition id |
//! | `system` | system calls without the C library, whose functions any library may wrap |
//! | `service` | the one thread of our own |
//! | `collector_process` | starts a collector when none runs |
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
pub mod hook_state;
pub mod loader;
pub mod memory;
pub mod on_full;
pub mod ownership;
pub mod rings;
pub mod segment;
pub mod service;
pub mod session;
mod slot_memory;
pub mod socket;
pub mod stderr;
pub mod system;
pub mod thread;
pub mod untraced;
