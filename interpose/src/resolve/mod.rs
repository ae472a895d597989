//! How a program reaches a driver function, and the originals behind our hooks.
//!
//! | way | file |
//! |---|---|
//! | direct link | the exports in `api`; the loader binds to them because we come first |
//! | `dlsym`, `dlvsym` | `look_up` |
//! | `cuGetProcAddress`, `_v2` | `proc_address` |
//! | a look-up that must fail as it would without us | `failed_look_up` |
//! | the real functions of libc | `libc_symbols`; those of its loader `loader` |
//! | the real functions of the driver | `originals` |
//!
//! One rule holds for all: the real resolver is called first, and only its result is replaced.

pub mod failed_look_up;
pub mod libc_symbols;
pub mod loader;
pub mod look_up;
pub mod originals;
pub mod proc_address;
