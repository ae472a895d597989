//! This crate's data in a thread's slot: its position among the stacks that it keeps, its open ranges, its
//! active span.

use core::cell::Cell as Shared;
use core::hint::cold_path;

use gputrace_producer::clock;
use gputrace_producer::session::Session;
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::thread::{Callbacks, Slot, Write};
use gputrace_wire::caller::Caller;

use crate::expected::{KeptPosition, KeptStacks, ThreadStore, ThreadStores};
use crate::python::lives::SeenEnds;
use crate::python::runtime::KnownThread;
use crate::python::tree::SeenTree;
use crate::ranges::open::Open;

/// What every call needs comes first, then what a stack needs.
#[repr(C)]
pub(crate) struct StackSlot {
    /// Whether `span` is set.
    pub has_span: Shared<bool>,
    /// Whether PyTorch may be asked on this thread, as `torch` knows it.
    pub asked: Shared<u8>,
    /// The store for the stacks that the thread keeps, if one was free, and the generation of the session
    /// that it is of; 0 if the thread did not ask for one.
    pub store: Shared<Option<&'static ThreadStore>>,
    pub store_of: Shared<u32>,
    /// The thread's position among these.
    pub kept: Shared<KeptPosition>,
    /// Where the thread's Python state was found.
    pub python: Shared<KnownThread>,
    /// The thread's open ranges, once it has pushed one.
    pub open: Shared<Option<&'static Open>>,
    /// The ends of code objects as the thread sees them.
    pub ends: Shared<SeenEnds>,
    /// The span of the ring's last CALLER entry; `NOBODY` if the ring has none of this thread.
    pub span: Shared<Caller>,
    /// The last tree of context variables in which the thread found no span's.
    pub searched: Shared<SeenTree>,
}

impl StackSlot {
    #[inline(always)]
    pub fn of(slot: &Slot) -> &StackSlot {
        // SAFETY: numbers, bools and optional references, for which zero is valid; only this function
        // uses the area.
        unsafe { slot.callstack.content() }
    }

    /// The calling thread's store in that session; the first time, one of `stores`. `slot` is the thread's.
    /// `None` if none was free; then the thread does not ask again in that session.
    #[inline(always)]
    pub fn store(slot: &Slot, stores: &ThreadStores, generation: u32) -> Option<&'static ThreadStore> {
        let state = StackSlot::of(slot);
        match state.store_of.get() == generation {
            true => state.store.get(),
            false => StackSlot::take_store(slot, stores, generation),
        }
    }

    /// The stacks that the calling thread keeps, of whatever session.
    ///
    /// # Safety
    ///
    /// As for [`ThreadStore::content`], whose reference to all of it must not be alive.
    #[inline(always)]
    pub unsafe fn kept_stacks(&self) -> Option<&KeptStacks> {
        // SAFETY: the thread took it; the caller's guarantee.
        self.store.get().map(|store| &unsafe { store.content() }.stacks)
    }

    /// Prefetches the words of Python's frames of the stack that the calling thread probably has. Called by a
    /// hook before the driver's call.
    #[inline(always)]
    pub fn expect(&self) {
        // SAFETY: the reference ends here, and the caller has none.
        if let Some(stacks) = unsafe { self.kept_stacks() } {
            cold_path();
            stacks.expect(self.kept.get());
        }
    }

    #[cold]
    #[inline(never)]
    fn take_store(slot: &Slot, stores: &ThreadStores, generation: u32) -> Option<&'static ThreadStore> {
        let _errno = KeepErrno::new();
        let state = StackSlot::of(slot);
        if let Some(of_earlier_session) = state.store.take() {
            of_earlier_session.give_back();
        }
        let store = stores.take();
        state.store.set(store);
        state.store_of.set(generation);
        state.kept.set(KeptPosition::default());
        slot.set_callbacks(&CALLBACKS);
        store
    }
}

/// Must be registered before a range or a span is written to a thread's ring.
pub(crate) static CALLBACKS: Callbacks = Callbacks { ring_is_new, catch_up, thread_ends };

fn ring_is_new(slot: &Slot) {
    let state = StackSlot::of(slot);
    state.span.set(Caller::NOBODY);
    state.has_span.set(false);
    if let Some(open) = state.open.get() {
        open.none_said();
    }
}

fn catch_up(slot: &Slot, session: &Session, write: Write<'_>) -> bool {
    let open = StackSlot::of(slot).open.get();
    open.is_none_or(|open| open.say_all(clock::now(), |label| label.definition(session), write))
}

fn thread_ends(slot: &Slot) {
    let state = StackSlot::of(slot);
    if let Some(open) = state.open.take() {
        open.give_back();
    }
    state.store_of.set(0);
    if let Some(store) = state.store.take() {
        store.give_back();
    }
}
