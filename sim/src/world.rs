//! All state of the simulation behind one lock, and what happens after the lock is released.

use crate::activity::{self, Activity};
use crate::array::Array;
use crate::calls;
use crate::capture::Capture;
use crate::context::Context;
use crate::copy::Shape;
use crate::error::{Code, Result};
use crate::event::Event;
use crate::fill::Pattern;
use crate::graph::{Graph, Node};
use crate::graph_exec::Executable;
use crate::handle::{Handle, Table};
use crate::host_work::Job;
use crate::interface::NodeEvent;
use crate::library::Library;
use crate::link::Link;
use crate::memory::{Mapping, Memory};
use crate::module::{Function, Module};
use crate::pool::Pool;
use crate::status;
use crate::stream::Stream;
use crate::user_object::UserObject;
use crate::virtual_memory::VirtualMemory;
use crate::work::{HostCall, ValueWrite};
use std::collections::HashMap;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// Everything there is.
pub struct World {
    pub contexts: Table<Context>,
    pub streams: Table<Stream>,
    pub events: Table<Event>,
    pub modules: Table<Module>,
    pub functions: Table<Function>,
    pub libraries: Table<Library>,
    pub graphs: Table<Graph>,
    pub nodes: Table<Node>,
    /// Captures under way, by id.
    pub capture_states: HashMap<u64, Capture>,
    pub executables: Table<Executable>,
    pub objects: Table<UserObject>,
    pub links: Table<Link>,
    pub pools: Table<Pool>,
    pub arrays: Table<Array>,
    pub memory: Memory,
    /// Memory of other processes that is open here: how often, by its address here and by what it is there.
    pub opened: HashMap<(u64, u64), (u64, u32)>,
    pub virtual_memory: VirtualMemory,
    /// Primary context of each device, with how often it is retained.
    pub primary: Vec<crate::context::Primary>,
    /// Default and current pool of each device.
    pub device_pools: Vec<crate::pool::DevicePools>,
    /// How many streams are stalled.
    pub stalled: usize,
    /// How many streams are capturing.
    pub captures: usize,
    /// The worker is delivering records. Waits end only after that.
    pub delivering: bool,
    /// What waits for the worker.
    pub jobs: Vec<Job>,
    pub worker_runs: bool,
    /// Names that records point to; they live as long as the process.
    pub names: HashMap<String, &'static std::ffi::CStr>,
    pub next_context_uid: u32,
    pub next_graph_id: u32,
    pub next_grid_id: u64,
    pub next_capture_id: u64,
    /// What has to be done once the lock is released.
    pub after: After,
}

/// Effects of performed operations that need not hold up others: moved bytes and records.
#[derive(Default)]
pub struct After {
    effects: Vec<Effect>,
    /// Functions of the program, never called with the lock.
    calls: Vec<HostCall>,
    records: Vec<Activity>,
    /// New nodes, for the callback.
    nodes: Vec<NodeEvent>,
    ignores_nodes: bool,
}

enum Effect {
    Copy(Shape),
    Fill(Pattern),
    Write(ValueWrite),
    /// Memory is unmapped only after all effects on it.
    Unmap(Mapping),
}

impl After {
    pub fn copy(&mut self, shape: Shape) {
        self.effects.push(Effect::Copy(shape));
    }

    pub fn fill(&mut self, pattern: Pattern) {
        self.effects.push(Effect::Fill(pattern));
    }

    pub fn write_value(&mut self, write: ValueWrite) {
        self.effects.push(Effect::Write(write));
    }

    pub fn unmap(&mut self, mapping: Mapping) {
        self.effects.push(Effect::Unmap(mapping));
    }

    pub fn call(&mut self, call: HostCall) {
        self.calls.push(call);
    }

    pub fn record(&mut self, record: Activity) {
        self.records.push(record);
    }

    pub fn node_made(&mut self, graph: Handle, node: Handle, id: u64) {
        if !self.ignores_nodes && calls::wants_nodes() {
            self.nodes.push(NodeEvent { graph, node, id });
        }
    }

    /// Sets whether the callback gets the nodes made from here on. Returns the earlier setting.
    pub fn reports_nodes(&mut self, reports: bool) -> bool {
        !std::mem::replace(&mut self.ignores_nodes, !reports)
    }

    fn is_empty(&self) -> bool {
        self.effects.is_empty() && self.records.is_empty() && self.calls.is_empty() && self.nodes.is_empty()
    }

    fn run_effects(&mut self) {
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Copy(shape) => shape.run(),
                Effect::Fill(pattern) => pattern.run(),
                Effect::Write(write) => write.run(),
                Effect::Unmap(mapping) => drop(mapping),
            }
        }
    }
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| Mutex::new(World::new()));
/// Signalled when a time became known or the worker has something to do; belongs to `WORLD`.
static CHANGED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` with the lock, then whatever it left to be done, on this thread.
#[inline]
pub fn with<R>(f: impl FnOnce(&mut World) -> R) -> R {
    let (result, after) = {
        let mut world = lock();
        let result = f(&mut world);
        if world.after.is_empty() {
            return result;
        }
        (result, std::mem::take(&mut world.after))
    };
    finish(after);
    result
}

#[inline(never)]
fn finish(mut after: After) {
    after.run_effects();
    after.nodes.iter().for_each(calls::deliver_node);
    activity::deliver(&after.records);
    for call in after.calls {
        (call.function)(call.argument);
    }
}

/// As [`with`], for the worker. Bytes are moved before the lock is released, and no wait ends before the
/// records are delivered, so that a thread woken by `f` finds everything done.
pub fn with_effects_inside<R>(f: impl FnOnce(&mut World) -> R) -> R {
    let (result, after) = {
        let mut world = lock();
        let result = f(&mut world);
        world.after.run_effects();
        world.delivering = true;
        (result, std::mem::take(&mut world.after))
    };
    finish(after);
    lock().delivering = false;
    CHANGED.notify_all();
    result
}

/// Tells all waiters to look again.
pub fn progress() {
    CHANGED.notify_all();
}

/// Waits until `f` gives a value.
pub fn wait_for<R>(f: &mut impl FnMut(&mut World) -> Result<Option<R>>) -> Result<R> {
    let mut world = lock();
    loop {
        if let Some(value) = f(&mut world)? {
            return Ok(value);
        }
        world = CHANGED.wait(world).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Waits until `f` gives a value, or looks again after the time that it gives instead.
pub fn wait_or_look_again<R>(
    f: &mut impl FnMut(&mut World) -> std::result::Result<R, Option<std::time::Duration>>,
) -> R {
    let mut world = lock();
    loop {
        match f(&mut world) {
            Ok(value) => return value,
            Err(None) => world = CHANGED.wait(world).unwrap_or_else(PoisonError::into_inner),
            Err(Some(pause)) => {
                world = CHANGED.wait_timeout(world, pause).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl World {
    pub(crate) fn new() -> World {
        World {
            contexts: Table::new(1, Code::INVALID_CONTEXT),
            streams: Table::new(2, Code::INVALID_HANDLE),
            events: Table::new(3, Code::INVALID_HANDLE),
            modules: Table::new(4, Code::INVALID_HANDLE),
            functions: Table::new(5, Code::INVALID_HANDLE),
            libraries: Table::new(6, Code::INVALID_HANDLE),
            graphs: Table::new(7, Code::INVALID_VALUE),
            nodes: Table::new(11, Code::INVALID_VALUE),
            capture_states: HashMap::new(),
            executables: Table::new(8, Code::INVALID_VALUE),
            objects: Table::new(13, Code::INVALID_VALUE),
            links: Table::new(14, Code::INVALID_HANDLE),
            pools: Table::new(9, Code::INVALID_VALUE),
            arrays: Table::new(10, Code::INVALID_HANDLE),
            memory: Memory::default(),
            opened: HashMap::new(),
            virtual_memory: VirtualMemory::default(),
            primary: Vec::new(),
            device_pools: Vec::new(),
            stalled: 0,
            captures: 0,
            delivering: false,
            jobs: Vec::new(),
            worker_runs: false,
            names: HashMap::new(),
            next_context_uid: 1,
            next_graph_id: 1,
            next_grid_id: 1,
            next_capture_id: 1,
            after: After::default(),
        }
    }

    /// A C string that lives as long as the process; equal names share one.
    pub fn intern(&mut self, name: &str) -> &'static std::ffi::CStr {
        if let Some(known) = self.names.get(name) {
            return known;
        }
        let owned = std::ffi::CString::new(name.replace('\0', "")).unwrap_or_default();
        let leaked: &'static std::ffi::CStr = Box::leak(owned.into_boxed_c_str());
        self.names.insert(name.to_string(), leaked);
        leaked
    }

    /// A new capture's id.
    pub fn new_capture_id(&mut self) -> u64 {
        self.next_capture_id += 1;
        self.next_capture_id - 1
    }

    /// The current context's handle, while the context can be used.
    pub fn current(&self) -> Result<Handle> {
        let context = crate::context::current()
            .filter(|&context| self.contexts.contains(context))
            .ok_or(Code::INVALID_CONTEXT)?;
        if status::read() & status::FAULTED != 0 {
            self.check_fault(context)?;
        }
        Ok(context)
    }
}
