//! How a program reaches a driver function, and what it gets.
//!
//! | way | file |
//! |---|---|
//! | direct link | the exports in `api`; the loader binds to them because we come first |
//! | `dlsym`, `dlvsym` | `look_up` |
//! | `cuGetProcAddress`, `_v2` | `proc_address` |
//!
//! One rule holds for all: the real resolver is called first, and only its result is replaced.

pub mod look_up;
pub mod proc_address;
