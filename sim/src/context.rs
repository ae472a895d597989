//! Contexts, primary contexts, and which one is current on a thread.

use crate::error::{Code, Result};
use crate::fault::Fault;
use crate::handle::Handle;
use crate::stream::{Role, Stream};
use crate::world::World;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

/// One context. The three times are when the work of a class of its streams ends.
pub struct Context {
    pub device: u32,
    pub flags: u32,
    /// The id that CUPTI and `cuCtxGetId` give; never used again.
    pub uid: u32,
    pub primary: bool,
    pub legacy_stream: Handle,
    per_thread: HashMap<u64, Handle>,
    next_stream_id: u32,
    pub limits: HashMap<u32, u64>,
    pub cache_config: u32,
    pub shared_config: u32,
    /// Contexts whose memory this one may use.
    pub peers: HashSet<Handle>,
    pub legacy_ready_ns: u64,
    pub blocking_ready_ns: u64,
    pub latest_ns: u64,
    pub fault: Option<Fault>,
}

/// A device's primary context.
#[derive(Default, Clone)]
pub struct Primary {
    pub context: Option<Handle>,
    pub retains: u32,
    pub flags: u32,
}

/// Flags that `cuCtxCreate` knows.
const KNOWN_FLAGS: u32 = 0xff;
/// Stream id of the legacy default stream, as CUPTI reports it on real devices.
const LEGACY_STREAM_ID: u32 = 7;

thread_local! {
    // Never dropped: a thread's last destructors may call the driver, after this one's.
    static STACK: RefCell<ManuallyDrop<Vec<Handle>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

/// A number for this thread that no other thread gets.
pub fn thread_key() -> u64 {
    let known = THREAD.get();
    if known != 0 {
        return known;
    }
    let key = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
    THREAD.set(key);
    key
}

/// What is on top of this thread's stack of contexts. It may be gone by now.
pub fn current() -> Option<Handle> {
    STACK.with_borrow(|stack| stack.last().copied()).filter(|&context| context != 0)
}

/// Pushes a context.
pub fn push(context: Handle) {
    STACK.with_borrow_mut(|stack| stack.push(context));
}

/// Pops a context.
pub fn pop() -> Result<Handle> {
    STACK.with_borrow_mut(|stack| stack.pop()).filter(|&context| context != 0).ok_or(Code::INVALID_CONTEXT)
}

/// Replaces the top; 0 takes it off.
pub fn set_current(context: Handle) {
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        if context != 0 {
            stack.push(context);
        }
    });
}

impl World {
    fn new_context(&mut self, device: u32, flags: u32, primary: bool) -> Result<Handle> {
        let uid = self.next_context_uid;
        self.next_context_uid += 1;
        let context = self.contexts.insert(Context {
            device,
            flags,
            uid,
            primary,
            legacy_stream: 0,
            per_thread: HashMap::new(),
            next_stream_id: 13,
            limits: HashMap::new(),
            cache_config: 0,
            shared_config: 0,
            peers: HashSet::new(),
            legacy_ready_ns: 0,
            blocking_ready_ns: 0,
            latest_ns: 0,
            fault: None,
        })?;
        let legacy = Stream::new(context, uid, device, LEGACY_STREAM_ID, Role::Legacy, 0, 0);
        let legacy = self.streams.insert(legacy)?;
        self.contexts.get_mut(context)?.legacy_stream = legacy;
        Ok(context)
    }

    /// `cuCtxCreate`: a new context, which becomes current.
    pub fn create_context(&mut self, device: u32, flags: u32) -> Result<Handle> {
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let context = self.new_context(device, flags, false)?;
        push(context);
        Ok(context)
    }

    /// `cuCtxDestroy`. The caller has waited for its work.
    pub fn destroy_context(&mut self, context: Handle) -> Result {
        if self.contexts.get(context)?.primary {
            return Err(Code::INVALID_CONTEXT);
        }
        self.remove_context(context)?;
        if current() == Some(context) {
            let _ = pop();
        }
        Ok(())
    }

    fn remove_context(&mut self, context: Handle) -> Result {
        self.contexts.get(context)?;
        for module in self.modules.handles_where(|module| module.context == context) {
            self.unload_module(module)?;
        }
        for stream in self.streams.handles_where(|stream| stream.context == context) {
            let stream = self.streams.remove(stream)?;
            if stream.capture.is_some() {
                self.captures -= 1;
            }
        }
        for event in self.events.handles_where(|event| event.context == context) {
            self.events.remove(event)?;
        }
        for array in self.arrays.handles_where(|array| array.context == context) {
            self.arrays.remove(array)?;
        }
        self.release_memory_of(context);
        for (_, library) in self.libraries.iter_mut() {
            library.modules.remove(&context);
        }
        self.contexts.remove(context)?;
        for (_, other) in self.contexts.iter_mut() {
            other.peers.remove(&context);
        }
        Ok(())
    }

    /// The record of a device's primary context.
    pub fn primary_of(&mut self, device: u32) -> &mut Primary {
        let wanted = device as usize + 1;
        if self.primary.len() < wanted {
            self.primary.resize(wanted, Primary::default());
        }
        &mut self.primary[device as usize]
    }

    /// `cuDevicePrimaryCtxRetain`.
    pub fn retain_primary(&mut self, device: u32) -> Result<Handle> {
        let primary = self.primary_of(device).clone();
        let context = match primary.context {
            Some(context) => context,
            None => self.new_context(device, primary.flags, true)?,
        };
        let held = self.primary_of(device);
        held.context = Some(context);
        held.retains += 1;
        Ok(context)
    }

    /// `cuDevicePrimaryCtxRelease`.
    pub fn release_primary(&mut self, device: u32) -> Result {
        let held = self.primary_of(device);
        if held.retains == 0 {
            return Err(Code::INVALID_CONTEXT);
        }
        held.retains -= 1;
        if held.retains == 0 { self.reset_primary(device) } else { Ok(()) }
    }

    /// `cuDevicePrimaryCtxReset`: everything in it goes, whoever retains it.
    pub fn reset_primary(&mut self, device: u32) -> Result {
        let held = self.primary_of(device);
        held.retains = 0;
        match held.context.take() {
            Some(context) => self.remove_context(context),
            None => Ok(()),
        }
    }

    /// The default stream of this thread in `context`.
    pub fn per_thread_stream(&mut self, context: Handle) -> Result<Handle> {
        let thread = thread_key();
        let held = self.contexts.get(context)?;
        if let Some(&stream) = held.per_thread.get(&thread) {
            return Ok(stream);
        }
        let stream = self.new_stream(context, Role::Blocking, 0, 0)?;
        self.contexts.get_mut(context)?.per_thread.insert(thread, stream);
        Ok(stream)
    }

    /// A new stream in `context`.
    pub fn new_stream(&mut self, context: Handle, role: Role, flags: u32, priority: i32) -> Result<Handle> {
        let held = self.contexts.get_mut(context)?;
        let id = held.next_stream_id;
        held.next_stream_id += 1;
        let stream = Stream::new(context, held.uid, held.device, id, role, flags, priority);
        self.streams.insert(stream)
    }

    /// `cuCtxGetLimit`.
    pub fn context_limit(&self, limit: u32) -> Result<u64> {
        let context = self.contexts.get(self.current()?)?;
        let default = match limit {
            0 => 1024,    // stack
            1 => 7 << 20, // printf
            2 => 8 << 20, // heap
            3 => 2,       // synchronisation depth
            4 => 2048,    // pending launches
            5 => 128,     // L2 fetch
            6 => 0,       // persisting L2
            _ => return Err(Code::UNSUPPORTED_LIMIT),
        };
        Ok(context.limits.get(&limit).copied().unwrap_or(default))
    }

    /// `cuCtxSetLimit`.
    pub fn set_context_limit(&mut self, limit: u32, value: u64) -> Result {
        self.context_limit(limit)?;
        let context = self.current()?;
        self.contexts.get_mut(context)?.limits.insert(limit, value);
        Ok(())
    }

    /// `cuCtxEnablePeerAccess`.
    pub fn enable_peer(&mut self, peer: Handle, flags: u32) -> Result {
        let context = self.current()?;
        let other = self.contexts.get(peer)?.device;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let held = self.contexts.get_mut(context)?;
        if held.device == other {
            return Err(Code::INVALID_DEVICE);
        }
        if held.peers.insert(peer) { Ok(()) } else { Err(Code::PEER_ACCESS_ALREADY_ENABLED) }
    }

    /// `cuCtxDisablePeerAccess`.
    pub fn disable_peer(&mut self, peer: Handle) -> Result {
        let context = self.current()?;
        self.contexts.get(peer)?;
        let removed = self.contexts.get_mut(context)?.peers.remove(&peer);
        if removed { Ok(()) } else { Err(Code::PEER_ACCESS_NOT_ENABLED) }
    }
}
