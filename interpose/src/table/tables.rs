//! A session's handles and their definitions.
//!
//! Each session has one set of lock-free tables, in mappings of its own; a forked child's session gets new
//! ones. A handle is defined when it is first seen and forgotten when it is destroyed, before the driver
//! can reuse the address for something else.

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_callstack::active_span::Works;
use gputrace_callstack::native::surroundings;
use gputrace_callstack::stacks::{self, Asked, Stacks};
use gputrace_callstack::torch::passes::Outside;
use gputrace_producer::fork;
use gputrace_producer::handles::{Handles, key_of};
use gputrace_producer::memory;
use gputrace_producer::session::Session;
use gputrace_producer::thread::Slot;
use gputrace_wire::definition::kind;

use crate::symbols::driver::Handle;
use crate::symbols::entry::Entry;
use crate::table::pairs::Pairs;

/// Slots for about half as many handles, 16 bytes each. Only touched pages of a table use memory.
const FUNCTION_SLOTS: usize = 1 << 17;
const MODULE_SLOTS: usize = 1 << 14;
const STREAM_SLOTS: usize = 1 << 14;
const CONTEXT_SLOTS: usize = 1 << 10;
const GRAPH_SLOTS: usize = 1 << 17;
const NAME_SLOTS: usize = 1 << 17;
/// Returns the number of a graph or an executable graph (if true) in device records; 0 if it is not known.
pub type GraphNumber = fn(Handle, bool) -> u32;

/// A launch of a known kernel and stream reads nothing of it; what any other launch reads comes first.
#[repr(C, align(64))]
pub struct Tables {
    pub(super) generation: u32,
    /// Whether CUPTI's records carry registers and shared memory, so that the driver need not be asked.
    pub(super) has_records: AtomicU32,
    /// 1 once all functions that launch kernels have a definition.
    pub(super) has_launching_apis: AtomicU32,
    pub(super) pairs: Pairs,
    pub(super) functions: Handles,
    pub(super) streams: Handles,
    /// `None` if there was no memory for them.
    pub(super) stacks: Option<Stacks>,
    /// The name and the module of each function that a look-up returned.
    pub(super) function_names: Handles,
    pub(super) function_modules: Handles,
    /// Which function handles are context-independent kernels (`CUkernel`): 1 if so.
    pub(super) kernels: Handles,
    pub(super) modules: Handles,
    pub(super) contexts: Handles,
    pub(super) devices: Handles,
    pub(super) graphs: Handles,
    /// Names, files that could not be loaded, and modules' line tables, by their bytes.
    pub(super) names: Handles,
    pub(super) files: Handles,
    pub(super) lines: Handles,
    /// Bytes written of modules' line tables.
    pub(super) lines_bytes: AtomicU64,
    pub(super) graph_number: GraphNumber,
}

/// The tables of that session; `None` before they are made, and between a fork and a new session.
#[inline(always)]
pub fn of(session: &Session) -> Option<&'static Tables> {
    if !session.is_of_process() {
        return None;
    }
    of_process()
}

/// The tables of the session that this process started last, likewise.
#[inline(always)]
pub fn of_process() -> Option<&'static Tables> {
    // SAFETY: the pointer is null or to tables that were written whole before it was stored
    // (Release in `make`) and are never freed.
    unsafe { fork::of_process().vendor.load(Ordering::Acquire).cast::<Tables>().as_ref() }
}

/// Prefetches what the hook of a launch reads after the driver returns, but for its pair. Between two calls
/// a program touches more memory than a core's caches hold, and each cache miss takes longer than all the
/// work of the hook.
#[inline(always)]
pub fn expect_entry(slot: &Slot) {
    stacks::expect(slot);
    slot.expect_entry();
}

/// Makes the tables of a new session.
pub fn make(session: &Session, graph_number: GraphNumber) -> Option<&'static Tables> {
    let tables = Tables {
        generation: session.generation,
        functions: Handles::new(FUNCTION_SLOTS)?,
        function_names: Handles::new(FUNCTION_SLOTS)?,
        function_modules: Handles::new(FUNCTION_SLOTS)?,
        kernels: Handles::new(FUNCTION_SLOTS)?,
        modules: Handles::new(MODULE_SLOTS)?,
        streams: Handles::new(STREAM_SLOTS)?,
        contexts: Handles::new(CONTEXT_SLOTS)?,
        devices: Handles::new(64)?,
        graphs: Handles::new(GRAPH_SLOTS)?,
        names: Handles::new(NAME_SLOTS)?,
        files: Handles::new(MODULE_SLOTS)?,
        lines: Handles::new(MODULE_SLOTS)?,
        lines_bytes: AtomicU64::new(0),
        stacks: Stacks::new(session.generation),
        pairs: Pairs::new()?,
        graph_number,
        has_records: AtomicU32::new(0),
        has_launching_apis: AtomicU32::new(0),
    };
    let mapping = memory::map_bytes(size_of::<Tables>())?.cast::<Tables>();
    // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
    let tables = unsafe {
        mapping.write(tables);
        &*mapping
    };
    tables.pairs.publish();
    fork::of_process().vendor.store(mapping.cast(), Ordering::Release);
    Some(tables)
}

impl Tables {
    /// Makes the tables of native frames. False if there is no memory for them. One thread at a time calls
    /// this.
    pub fn make_native(&self) -> bool {
        self.stacks.as_ref().is_some_and(Stacks::make_native)
    }

    /// Writes a notice if there was no memory for the tables of stacks.
    pub fn notice_missing_tables(&self, session: &Session) {
        if self.stacks.is_none() || surroundings::is_asked_for() && !self.make_native() {
            session.notice(
                1,
                0,
                b"no stacks, or no native ones: no memory for their tables (RLIMIT_AS too low)",
            );
        }
    }

    pub fn set_has_records(&self, has: bool) {
        self.has_records.store(u32::from(has), Ordering::Relaxed);
    }

    /// The symbol's definition. It is made when it is first asked for.
    #[inline(always)]
    pub fn api(&self, session: &Session, entry: &Entry) -> u32 {
        entry.api_in(self.generation).unwrap_or_else(|| self.define_api(session, entry))
    }

    #[cold]
    #[inline(never)]
    fn define_api(&self, session: &Session, entry: &Entry) -> u32 {
        let id = session.define(kind::API, &[], entry.name().as_bytes());
        // Without room for it, the next call tries again.
        if id != 0 {
            entry.api.store(u64::from(self.generation) << 32 | u64::from(id), Ordering::Relaxed);
        }
        id
    }

    /// The calling thread's current stack; 0 if it is not known.
    #[inline(always)]
    pub fn stack(&self, session: &Session, slot: &Slot) -> u32 {
        self.stack_and_works(session, slot).0
    }

    /// The same, plus the state from which the active span is found.
    #[inline(always)]
    pub fn stack_and_works(&self, session: &Session, slot: &Slot) -> (u32, Works) {
        let Some(asked) = stacks::asked(session.hook_state()) else { return (0, Works::NOT) };
        match stacks::expected(self.generation, slot, asked) {
            Some(found) => found,
            None => self.unexpected_stack(session, slot, asked),
        }
    }

    /// The same where the stack is not the [expected](stacks::expected) one.
    #[inline(always)]
    pub fn unexpected_stack(&self, session: &Session, slot: &Slot, asked: Asked) -> (u32, Works) {
        match &self.stacks {
            Some(stacks) => stacks.unexpected(session, slot, asked),
            None => (0, Works::NOT),
        }
    }

    /// The same, plus the thread's position in its frames.
    pub fn stack_and_position(&self, session: &Session, slot: &Slot) -> (u32, Outside) {
        let both = |stacks: &Stacks| (self.stack(session, slot), stacks.position(session));
        self.stacks.as_ref().map_or((0, Outside::default()), both)
    }

    /// The definition of a name that is a frame of a stack.
    #[inline(always)]
    pub fn stack_name(&self, session: &Session, name: &[u8]) -> u32 {
        self.stacks.as_ref().map_or(0, |stacks| stacks.name(session, key_of(name), name))
    }

    /// The definition of a name. Each distinct name has one.
    pub fn name(&self, session: &Session, name: &[u8]) -> u32 {
        self.names.get_or_define(key_of(name), || session.define(kind::NAME, &[], name))
    }

    pub fn graph(&self, session: &Session, handle: Handle, form: u64, source: u32) -> u32 {
        self.graphs.get_or_define(handle as u64, || self.define_graph(session, handle, form, source))
    }

    pub fn graph_made(&self, session: &Session, handle: Handle, form: u64, source: u32) -> u32 {
        self.graphs.redefine(handle as u64, || self.define_graph(session, handle, form, source))
    }

    #[cold]
    fn define_graph(&self, session: &Session, handle: Handle, form: u64, source: u32) -> u32 {
        let number = (self.graph_number)(handle, form == 1);
        session.define(kind::GRAPH, &[handle as u64, form, source.into(), number.into()], b"")
    }

    /// Forgets the graph and returns its definition.
    pub fn forget_graph(&self, handle: Handle) -> u32 {
        let id = self.graphs.get(handle as u64).unwrap_or(0);
        self.graphs.forget(handle as u64);
        id
    }
}
