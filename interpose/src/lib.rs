//! `libgputrace.so`: preloaded into a CUDA program, it hooks the driver API and asks CUPTI.
//!
//! ```text
//!  program ─► resolve (dlsym, cuGetProcAddress, direct link) ─► a hook from the table in `api`
//!             hook: guard, start, original exactly once, end ─► describe ─► one event
//!  CUPTI   ─► cupti::buffers ─► cupti::records ─► events
//! ```
//!
//! | file or folder | noun |
//! |---|---|
//! | `api` | the one table of hooked functions with their ABI variants |
//! | `hook` | the steps every hook takes |
//! | `describe/` | what a call did, by family of calls |
//! | `resolve/` | the ways a program reaches a driver entry, and the originals |
//! | `tables` | a session's handles and the definitions they stand for |
//! | `device` | what the driver says of its devices |
//! | `cupti/` | device times: which libcupti, its client, its buffers and records |
//! | `start`, `finish` | a session's first and last moment |
//! | `detour`, `patience` | the stack of our own on which both run; how long the end waits |
//! | `preload_once` | what `run` preloaded for one exec, taken out of the environment |
//! | `search_path`, `failed_exec` | whether an exec can succeed; the session after one that did not |
//! | `unwind` | the unwinder's functions, so that libgcc_s need not be there |
//! | `loaded` | how many objects the loader has mapped and unmapped |
//! | `native` | whether native frames are told, and what their reader must know |
//! | `python` | where the interpreter is whose frames are told |
//! | `torch` | backward passes of PyTorch, seen as they begin |
//! | `origin` | what was given to the process: its trace, its service, its machine |
//! | `rank` | which of a job's processes this is |
//! | `nvtx` | the program's ranges and names |
//! | `cuda_slot` | what the CUDA side keeps in a thread's slot |
//! | `settings` | the GPUTRACE_… variables this library reads |
//!
//! This code runs inside somebody else's program. It never panics, never changes a result, and
//! on the path of a call never locks, allocates or makes a system call.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]
#![cfg_attr(
    test,
    // The exports are not exports in the unit tests, or the test program would hook itself.
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, dead_code)
)]
// The hooks carry the driver's own names.
#![allow(non_snake_case)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "libgputrace.so is written for Linux on x86_64: its dlsym is a few lines of that processor's assembly"
);

mod api;
mod cuda_slot;
mod cupti;
mod describe;
mod detour;
mod device;
mod driver;
mod environment;
mod failed_exec;
mod finish;
mod hook;
mod loaded;
mod memory_functions;
mod native;
mod nvtx;
mod origin;
mod patience;
mod preload_once;
mod python;
mod rank;
mod resolve;
mod search_path;
mod settings;
mod start;
mod tables;
mod torch;
mod unwind;
