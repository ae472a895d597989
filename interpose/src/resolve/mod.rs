//! The ways a program reaches a driver entry, and the originals behind our hooks.
//!
//! | way | file |
//! |---|---|
//! | direct link | the exports in `api`; the loader binds to them because we come first |
//! | `dlsym`, `dlvsym` | `look_up` |
//! | `cuGetProcAddress`, `_v2` | `proc_address` |
//! | a look-up that must fail as if we were not there | `failed_look_up` |
//! | the real functions of libc | `libc_symbols`; those of its loader `loader` |
//! | the real functions of the driver | `originals` |
//!
//! The rule for all: the real resolver is asked first, and only what it found is replaced.

pub mod failed_look_up;
pub mod libc_symbols;
pub mod loader;
pub mod look_up;
pub mod originals;
pub mod proc_address;
