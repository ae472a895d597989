//! Contexts, devices and streams: the part of [`Tables`] about them.

use core::ffi::c_int;

use gputrace_producer::session::Session;
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::thread::{self, Slot};
use gputrace_wire::definition::kind;

use crate::symbols::driver::{self, Device, Handle, SUCCESS};
use crate::table::cuda_slot::CudaSlot;
use crate::table::tables::{Tables, expect_entry};

/// Called when the thread's current context may have changed. The slot keeps the context as one word: the
/// low half is its definition, the high half the session's generation.
pub fn forget_current_context() {
    thread::with(forget_context_of);
}

fn forget_context_of(slot: &Slot) {
    CudaSlot::of(slot).default_streams.set(0);
    CudaSlot::of(slot).context.set(0);
}

/// Forgets the thread's current context if what is known of it is of an earlier session.
pub(super) fn forget_earlier_context(generation: u32, slot: &Slot) {
    if known_current_context(generation, slot).is_none() {
        forget_context_of(slot);
    }
}

impl Tables {
    /// Prefetches what the hook of any call reads after the driver returns.
    #[inline(always)]
    pub fn expect(&self, slot: &Slot) {
        // The thread's default stream, which most calls use.
        let context = || known_current_context(self.generation, slot).unwrap_or(0);
        self.streams.expect(stream_key(core::ptr::null_mut(), false, context));
        expect_entry(slot);
    }

    /// The context's definition, with its device's.
    pub fn context(&self, session: &Session, handle: Handle, device: Device) -> u32 {
        self.contexts.get_or_define(handle as u64, || {
            let device = self.device(session, device);
            session.define(kind::CONTEXT, &[handle as u64, device.into()], b"")
        })
    }

    pub fn forget_context(&self, handle: Handle) {
        self.contexts.forget(handle as u64);
    }

    pub fn device(&self, session: &Session, device: Device) -> u32 {
        // Ordinals begin at 0, which is no key.
        self.devices.get_or_define(device as u64 + 1, || crate::table::device::define(session, device))
    }

    /// A context that is known already; a name can be given only to a known context or device.
    pub fn known_context(&self, handle: Handle) -> u32 {
        self.contexts.get(handle as u64).unwrap_or(0)
    }

    pub fn known_device(&self, device: Device) -> u32 {
        // The key is the ordinal plus one, as in `device`; a negative ordinal has none.
        u64::try_from(device).ok().and_then(|ordinal| self.devices.get(ordinal + 1)).unwrap_or(0)
    }

    /// The calling thread's current context.
    #[inline(always)]
    pub(super) fn current_context(&self, session: &Session, slot: &Slot) -> u32 {
        known_current_context(self.generation, slot)
            .unwrap_or_else(|| self.ask_current_context(session, slot))
    }

    #[cold]
    #[inline(never)]
    fn ask_current_context(&self, session: &Session, slot: &Slot) -> u32 {
        let _errno = KeepErrno::new();
        let mut handle = core::ptr::null_mut();
        if driver::current_context(&mut handle) != Some(SUCCESS) || handle.is_null() {
            return 0;
        }
        let id = match self.contexts.get(handle as u64) {
            Some(id) => id,
            None => {
                let mut device: c_int = 0;
                if driver::current_device(&mut device) != Some(SUCCESS) {
                    return 0;
                }
                self.context(session, handle, device)
            }
        };
        CudaSlot::of(slot).context.set(u64::from(id) | u64::from(self.generation) << 32);
        CudaSlot::of(slot).default_streams.set(DEFAULT_STREAM_TAG | u64::from(id) << 2);
        id
    }

    /// The stream's definition. There is one per context for each default stream; the per-thread default
    /// streams of all threads share one.
    #[inline(always)]
    pub fn stream(&self, session: &Session, slot: &Slot, handle: Handle, per_thread: bool) -> u32 {
        let key = stream_key(handle, per_thread, || self.current_context(session, slot));
        match self.streams.get(key) {
            Some(id) => id,
            None => self.define_stream(session, slot, key, handle),
        }
    }

    #[cold]
    #[inline(never)]
    fn define_stream(&self, session: &Session, slot: &Slot, key: u64, handle: Handle) -> u32 {
        let context = self.current_context(session, slot);
        let handle = if key & DEFAULT_STREAM_TAG != 0 { key & 3 } else { handle as u64 };
        self.streams.get_or_define(key, || session.define(kind::STREAM, &[handle, context.into()], b""))
    }

    pub fn stream_created(&self, session: &Session, handle: Handle, flags: u32, priority: c_int) -> u32 {
        let context = thread::with(|slot| self.current_context(session, slot));
        let fields = [handle as u64, context.into(), flags.into(), i64::from(priority).cast_unsigned()];
        self.pairs.retire(|_, stream| stream == handle as u64);
        self.streams.redefine(handle as u64, || session.define(kind::STREAM, &fields, b""))
    }

    pub fn forget_stream(&self, handle: Handle) {
        if handle as u64 > LAST_DEFAULT_STREAM {
            self.streams.forget(handle as u64);
            self.pairs.retire(|_, stream| stream == handle as u64);
        }
    }
}

/// The definition of the thread's current context, if it is known without asking the driver.
#[inline(always)]
pub(super) fn known_current_context(generation: u32, slot: &Slot) -> Option<u32> {
    let word = CudaSlot::of(slot).context.get();
    ((word >> 32) as u32 == generation).then_some(word as u32)
}

/// The key of a stream in tables. That of a default stream contains its context's definition.
#[inline(always)]
pub(super) fn stream_key(handle: Handle, per_thread: bool, context: impl FnOnce() -> u32) -> u64 {
    match handle as u64 {
        which @ 0..=LAST_DEFAULT_STREAM => {
            let which = if which == 0 && per_thread { LAST_DEFAULT_STREAM } else { which.max(1) };
            DEFAULT_STREAM_TAG | u64::from(context()) << 2 | which
        }
        key => key,
    }
}

/// The key of a launch's stream among pairs: like [`stream_key`], but the legacy stream has two, by its two
/// handles. A default stream of a context that is not known has a key of no pair; its kernel must not be
/// null, which the driver refuses. What the slot has of the context must be of the running session.
#[inline(always)]
pub(super) fn key_of_launch(handle: Handle, per_thread: bool, slot: &Slot) -> u64 {
    match handle as u64 {
        0 if per_thread => CudaSlot::of(slot).default_streams.get() | LAST_DEFAULT_STREAM,
        which @ 0..=LAST_DEFAULT_STREAM => CudaSlot::of(slot).default_streams.get() | which,
        key => key,
    }
}

/// `CU_STREAM_PER_THREAD`; `CU_STREAM_LEGACY` is 1 and 0 means either.
pub(super) const LAST_DEFAULT_STREAM: u64 = 2;
/// Marks the keys of default streams, so that they equal no other stream's key.
const DEFAULT_STREAM_TAG: u64 = 1 << 62;
