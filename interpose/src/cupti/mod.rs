//! Device times: CUPTI's activity records, for as long as CUPTI lets us.
//!
//! | file | noun |
//! |---|---|
//! | `library` | which libcupti, and loading it |
//! | `client` | our one subscription: kinds, callbacks, and giving way |
//! | `launches` | the callback that hands correlation ids to the hooks |
//! | `buffers` | the pool that CUPTI fills |
//! | `records` | records become events |
//!
//! Nothing here holds a lock of ours while it calls CUPTI, and no CUDA call is made in a
//! callback. Without CUPTI the hooks go on alone, and one line says why.

mod buffers;
mod client;
mod launches;
mod library;
pub mod others;
mod records;

pub use client::{finish, start, turn};
