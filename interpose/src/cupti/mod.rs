//! Device times: CUPTI's activity records, for as long as CUPTI lets us.
//!
//! | file | noun |
//! |---|---|
//! | `library` | which libcupti, and loading it |
//! | `old_torch` | a PyTorch that has a CUPTI linked in |
//! | `root` | the process's one real use of it, for whoever wants something |
//! | `client` | the tracer's use: its kinds, its flushes, and leaving |
//! | `callbacks` | CUPTI's callbacks, to the tracer and the guest |
//! | `launches` | the tracer's: correlation ids for the hooks |
//! | `graph_times` | the tracer's: whether graphs are timed by node or as a whole |
//! | `instantiation` | the tracer's: which graphs may be timed as a whole |
//! | `whole_kind` | the kind for whole graphs: when it is switched |
//! | `nodes` | the tracer's: numbers of graphs and their nodes |
//! | `buffers` | the pool that CUPTI fills |
//! | `open` | the buffers that it fills just now, and how far each is told |
//! | `records/` | records become events, as they are delivered or before |
//! | `postponed` | full buffers that had to wait for the ring |
//! | `guest/` | another client, which finds a CUPTI of its own |
//!
//! Nothing here holds a lock of ours while it calls CUPTI, and no CUDA call is made in a
//! callback. Without CUPTI the hooks go on alone, and one line says why.

mod buffers;
mod callbacks;
mod client;
mod graph_times;
pub mod guest;
pub mod instantiation;
mod launches;
pub mod library;
pub mod nodes;
mod old_torch;
mod open;
mod postponed;
mod records;
mod root;
pub mod whole_kind;

pub use client::{finish, start, turn};
