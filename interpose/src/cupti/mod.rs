//! Device times: CUPTI's activity records, while CUPTI is available.
//!
//! | file | noun |
//! |---|---|
//! | `library` | chooses a libcupti and loads it |
//! | `old_torch` | detects a PyTorch with a statically linked CUPTI |
//! | `root` | the process's only real use of CUPTI, shared by the tracer and the guest |
//! | `attach` | how and when the tracer attaches to CUPTI |
//! | `client` | the tracer's use of CUPTI: its begin, its flushes, and its end |
//! | `pause` | switches the kinds as a session is paused, or as device times are switched |
//! | `switching` | the right to do so |
//! | `windows` | device times for a part of the time |
//! | `schedule` | when windows open and end |
//! | `awaited` | how many records of a window have come |
//! | `base_kinds` | the kinds of every trace, switched while the program runs |
//! | `budget` | how much of the time windows may have, by what tracing may cost |
//! | `spending` | what it costs |
//! | `known_end` | whether CUPTI knows when an operation ended |
//! | `kinds` | who requests which activity kinds, and the only place that switches them |
//! | `callbacks` | CUPTI's callbacks, for the tracer and the guest |
//! | `launch_callbacks` | tracer: when CUPTI calls back at launches |
//! | `launches` | tracer: correlation ids for the hooks |
//! | `graph_times` | tracer: chooses graph-level or node-level timing |
//! | `graph_state` | tracer: the state of that choice and its transitions |
//! | `instantiation` | tracer: which graphs allow graph-level timing |
//! | `whole_kind` | tracer: when the activity kind of graph-level timing is switched |
//! | `nodes` | tracer: numbers of graphs and their nodes |
//! | `buffers` | the buffer pool that CUPTI fills |
//! | `open` | buffers that CUPTI is filling, and how far each has been read |
//! | `returned` | full buffers: delivered at once, or kept until the ring is free |
//! | `records/` | converts records into events, at delivery or before |
//! | `guest/` | another client, which is given a CUPTI of its own |
//!
//! No lock of ours is held while CUPTI is called, and no CUDA call is made in a callback. Without CUPTI
//! the hooks go on alone, and one line gives the reason.

mod attach;
mod awaited;
mod base_kinds;
mod budget;
mod buffers;
mod callbacks;
mod client;
mod graph_state;
mod graph_times;
pub mod guest;
pub mod instantiation;
mod kinds;
mod known_end;
mod launch_callbacks;
mod launches;
pub mod library;
mod nodes;
mod old_torch;
mod open;
pub mod pause;
mod records;
mod returned;
mod root;
mod schedule;
mod spending;
mod switching;
pub mod whole_kind;
mod windows;

use crate::lifecycle::device_times::DeviceTimes;

/// What this layer does in a session's life.
pub static DEVICE_TIMES: DeviceTimes = DeviceTimes {
    start: client::start,
    turn: client::turn,
    switch: pause::switch_times,
    now: pause::times_now,
    between: windows::between,
    finish: client::finish,
    graph_number: nodes::graph_number,
    run_call: guest::own_calls::hide,
};
