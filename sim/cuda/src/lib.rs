//! `libcuda.so.1` of the simulated device: the C ABI over the engine in `gputrace-sim`.
//!
//! Each file but the first few is a part of one table, made by the `api!` macro:
//! an entry is the exported function, what `cuGetProcAddress` answers, the name for
//! `GPUTRACE_SIM_FAIL`, and CUPTI's number. No state and no policy live here.

mod abi;
mod entry;
mod private;
mod proc_address;
mod transfer;
mod volume;

mod array;
mod capture;
mod context;
mod device;
mod event;
mod function;
mod graph;
mod graph_exec;
mod graph_node;
mod initialisation;
mod launch;
mod link;
mod memcpy;
mod memory;
mod memset;
mod module;
mod pool;
mod sharing;
mod stream;
mod user_object;
mod virtual_memory;

/// The numbers by which CUPTI names driver functions in its callbacks, from `cupti-sys/facts`.
#[allow(non_upper_case_globals, dead_code)]
mod cbid {
    include!(concat!(env!("OUT_DIR"), "/cbid.rs"));
}

/// The whole table.
pub(crate) static TABLE: &[&[&entry::Export]] = &[
    array::ENTRIES,
    capture::ENTRIES,
    context::ENTRIES,
    device::ENTRIES,
    event::ENTRIES,
    function::ENTRIES,
    graph::ENTRIES,
    graph_exec::ENTRIES,
    initialisation::ENTRIES,
    launch::ENTRIES,
    link::ENTRIES,
    memcpy::ENTRIES,
    memory::ENTRIES,
    memset::ENTRIES,
    module::ENTRIES,
    pool::ENTRIES,
    proc_address::ENTRIES,
    sharing::ENTRIES,
    stream::ENTRIES,
    user_object::ENTRIES,
    virtual_memory::ENTRIES,
];
