//! The engine of the simulated CUDA device.
//!
//! It owns everything that `libcuda.so.1` and `libcupti.so` of the simulation
//! have to agree on: devices, contexts, memory, modules, streams, graphs, and the
//! virtual clock by which they all run. It knows no C ABI: `sim/cuda` is the thin
//! layer of exported functions over it, and `sim/cupti` reaches it through the
//! table in [`interface`].
//!
//! All state is in one [`world::World`] behind one lock. A call takes the lock
//! once, for well under a microsecond; waiting, host functions, record delivery
//! and the copying of bytes happen outside it.

pub mod activity;
pub mod array;
pub mod attributes;
pub mod calls;
pub mod capture;
pub mod clock;
pub mod context;
pub mod copy;
pub mod cubin;
pub mod device;
pub mod error;
pub mod event;
pub mod failure;
pub mod fault;
pub mod fill;
pub mod graph;
pub mod graph_exec;
pub mod handle;
pub mod host_work;
pub mod interface;
pub mod launch;
pub mod library;
pub mod link;
pub mod memory;
pub mod module;
pub mod occupancy;
pub mod pointer;
pub mod pool;
pub mod ptx;
pub mod settings;
pub mod status;
pub mod stream;
pub mod timeline;
pub mod tokens;
pub mod user_object;
pub mod virtual_memory;
pub mod work;
pub mod world;
