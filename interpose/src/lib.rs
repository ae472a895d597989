//! `libgputrace.so`: preloaded into a CUDA program. It hooks the driver API and collects CUPTI's records.
//!
//! ```text
//!  program ─► resolve (dlsym, cuGetProcAddress, direct link) ─► a hook from the table in `api`
//!             hook: guard, start, original exactly once, end ─► describe ─► one event
//!  CUPTI   ─► cupti::buffers ─► cupti::records ─► events
//! ```
//!
//! Layers, the highest first. A layer imports those below it only:
//!
//! | folder or file | noun |
//! |---|---|
//! | `load` | what runs when the library is loaded |
//! | `api`, `resolve/` | the one table of hooked functions; the ways a program finds a driver function |
//! | `cupti/` | device times: choice of libcupti, its client, its buffers and records |
//! | `lifecycle/` | start and end of a session, exec |
//! | `frames/`, `nvtx/` | finds what frames are read from; the program's ranges and names |
//! | `describe/` | what a call did, by family of calls |
//! | `hook/` | the steps every hook takes |
//! | `table/` | a session's handles and their definitions |
//! | `symbols/` | functions of others: the driver's, libc's, the unwinder's |
//! | `process/` | what the library needs of the process, CUDA or not |
//!
//! Where a layer must call a higher one, `api` passes the function along with the call (the start of a
//! session), or `process::link` holds it (what `cupti` does when a session starts and ends).
//!
//! This code runs inside somebody else's program. It never panics and never changes a result. On the
//! path of a call it never locks, allocates or makes a system call.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]
#![cfg_attr(
    test,
    // Unit tests do not export the hooks: the test program would hook itself.
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, dead_code)
)]
// The hooks have the driver's own names.
#![allow(non_snake_case)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "libgputrace.so is written for Linux on x86_64: its dlsym is a few lines of that processor's assembly"
);

mod api;
mod cupti;
mod describe;
mod frames;
mod hook;
mod lifecycle;
mod load;
mod nvtx;
mod process;
mod resolve;
mod symbols;
mod table;
