//! A call's stack as one number: the id of a stack that was defined once.
//!
//! This module combines the parts of a stack; the module of each part reads it. Most stacks are the one that
//! was expected ([`crate::expected`]), and are recognised by what was read the last time. For another one
//! every part computes a number for its frames, and the combination of these numbers is looked up.
//!
//! Python's part has two numbers. The first, a fingerprint, is cheap, but may change while the stack stays
//! the same; the stack cache is searched by it. On a miss, Python's second number is computed, which does
//! not change with the fingerprint; the stack table is searched by that one, and the stack enters the cache
//! again. At first sight the parts write their frames, and the frames are combined and defined. Two stacks
//! of one program collide with a chance of about n²/2^65: 10^-10 for sixty thousand stacks.
//!
//! Memory is bounded. Tables take at most 5 MiB for 65 536 stacks and half as many code objects, and 4.3 MiB
//! for each of at most 16 threads, all of it touched where used. Definitions take at most half of the
//! definitions area (32 MiB), so that stacks never crowd out the names of kernels. When either is full, new
//! stacks get id 0 and are counted, and known stacks keep their ids.

use core::cell::UnsafeCell;
use core::hint::cold_path;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use gputrace_producer::handles::Handles;
use gputrace_producer::hook_state::HookState;
use gputrace_producer::memory::{self, Zeroed};
use gputrace_producer::session::Session;
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::thread::Slot;
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::{FIELDS_MAX, kind};

use crate::active_span::Works;
use crate::expected::{Circumstances, Content, KeptStacks, ThreadStores};
use crate::fold::fold;
use crate::native::frames::{self, Expected, Native};
use crate::native::last_walk::NativeStart;
use crate::native::merge::{FrameBoundary, Outermost, PythonFrame, merge};
use crate::native::walk as native_walk;
use crate::python::code::{Define, Text};
use crate::python::known_chain;
use crate::python::memory::{Checked, Own};
use crate::python::runtime::{self, Runtime};
use crate::python::stacks::{Codes, StackItem, fingerprint_inside, hash_inside};
use crate::python::walk::{self, ChainEnd, Damaged, FRAMES_MAX};
use crate::read_word::ReadWord;
use crate::recent::{Cached, Recent};
use crate::stack_slot::StackSlot;
use crate::torch::passes::Outside;
use crate::torch::{self, Around, node, operators};

const STACKS_MAX: u32 = 1 << 16;
const STACK_SLOTS: usize = 1 << 17;
/// Names of autograd nodes: PyTorch has some hundred node types.
const NAME_SLOTS: usize = 1 << 14;
/// The frame put above the node of a backward pass.
const AUTOGRAD: &[u8] = b"[autograd]";
/// The C++ type of nodes that are written in Python.
const PYTHON_NODE: &[u8] = b"N5torch8autograd6PyNodeE";
/// Pairs reserved for what precedes a thread's own frames: the calling stack, [`AUTOGRAD`], the stacks of the
/// forward pass, the node and the mark of a cut.
const PAIRS_BEFORE: usize = 5;
/// Threads that can define a stack at the same moment; a definition takes some microseconds.
const STACK_BUFFERS: usize = 8;
/// How often a thread tries to take one of these buffers.
const TRIES: u32 = 20_000;

/// A buffer in which a stack is combined.
struct StackBuffer {
    is_taken: AtomicU32,
    parts: UnsafeCell<Parts>,
}

struct Parts {
    pairs: [u64; FIELDS_MAX],
    python: [PythonFrame; FRAMES_MAX],
    native: frames::FrameBuffer,
    text: Text,
}

// SAFETY: what is in the cells is touched by the thread that took the buffer, one at a time.
unsafe impl Sync for StackBuffer {}
// SAFETY: all of it is numbers.
unsafe impl Zeroed for StackBuffer {}

/// A session's stacks.
pub struct Stacks {
    /// The session's.
    generation: u32,
    codes: Codes,
    /// Null until native frames are asked for, or if there was no memory for their tables.
    native: AtomicPtr<Native>,
    recent: Recent,
    stacks: Handles,
    names: Handles,
    buffers: &'static [StackBuffer],
    stores: ThreadStores,
    count: AtomicU32,
}

impl Define for Session {
    fn define(&self, kind: u16, fields: &[u64], text: &[u8]) -> u32 {
        Session::define(self, kind, fields, text)
    }
}

/// The calling thread's Python state, if it runs Python.
type Python<'r> = Option<(&'r Runtime, u64)>;

/// Prefetches, before the driver is called, what the stack that the calling thread probably has is compared
/// with. What all stacks need is not prefetched: in a real program a hook took longer with it.
#[inline(always)]
pub fn expect(slot: &Slot) {
    StackSlot::of(slot).expect();
}

/// The frames that stacks have now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    Python,
    /// Native ones or operators, and perhaps Python's.
    Others,
}

/// Which frames are asked for; `None` if none are. Reads nothing but what every hook reads of the process.
#[inline(always)]
pub fn asked(state: HookState) -> Option<Asked> {
    if state.has_native() || operators::are_observed() {
        cold_path();
        Some(Asked::Others)
    } else {
        state.has_python().then_some(Asked::Python)
    }
}

/// Whether the calling thread's stack can have nothing but Python frames.
#[inline(always)]
fn has_python_only(asked: Asked, slot: &Slot) -> bool {
    asked == Asked::Python && torch::is_never_around(slot)
}

/// The calling thread's stack, if it has Python frames only and is the one that was expected, as most are.
/// Otherwise `None`, and [`Stacks::unexpected`] has it. Also returns what is needed to find the thread's
/// active span.
#[inline(always)]
pub fn expected(generation: u32, slot: &Slot, asked: Asked) -> Option<(u32, Works)> {
    if has_python_only(asked, slot)
        && let found @ (1.., _) = expected_python(generation, slot)
    {
        return Some(found);
    }
    cold_path();
    None
}

/// The same, with 0 for none. It calls nothing, unless the thread has a context of Python's variables: so it
/// runs through few lines of code.
#[inline(never)]
// In the page of cuLaunchKernel's hook, through which most launches run.
#[unsafe(link_section = ".text.hot.hooks.cuLaunchKernel")]
fn expected_python(generation: u32, slot: &Slot) -> (u32, Works) {
    let thread = StackSlot::of(slot);
    let position = thread.kept.get();
    // SAFETY: the hook of the calling thread, which has no other reference to its stacks. This one is not
    // used after the `if`.
    if let Some(kept_stacks) = unsafe { thread.kept_stacks() }
        && let Some(runtime) = runtime::current()
        && let Some(state) = runtime.readable_state(&thread.python)
        && let circumstances = Circumstances::now(generation, state, 0, false)
        && let Some((kept, frames, _)) = kept_stacks.find(position.expected(), circumstances)
        // SAFETY: as in `of_parts`.
        && known_chain::is(&unsafe { Own::new() }, &runtime.layout, state, frames)
    {
        thread.kept.set(kept_stacks.follow(position));
        return Works::with_stack(kept.met(), runtime, state);
    }
    (0, Works::NOT)
}

impl Stacks {
    pub fn new(generation: u32) -> Option<Stacks> {
        Some(Stacks {
            generation,
            codes: Codes::new()?,
            native: AtomicPtr::new(core::ptr::null_mut()),
            recent: Recent::new()?,
            stacks: Handles::new(STACK_SLOTS)?,
            names: Handles::new(NAME_SLOTS)?,
            buffers: memory::map(STACK_BUFFERS)?,
            stores: ThreadStores::default(),
            count: AtomicU32::new(0),
        })
    }

    /// Makes the tables of native frames, at the session's start or when they are asked for later. False if
    /// there is no memory for them. One thread at a time calls this.
    pub fn make_native(&self) -> bool {
        if !self.native.load(Ordering::Acquire).is_null() {
            return true;
        }
        let (Some(native), Some(mapped)) = (Native::new(), memory::map_bytes(size_of::<Native>())) else {
            return false;
        };
        let mapped = mapped.cast::<Native>();
        // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
        unsafe { mapped.write(native) };
        // SYNC: pairs with the Acquire in `native`: a hook sees the tables complete.
        self.native.store(mapped, Ordering::Release);
        true
    }

    /// The tables by which native frames are read, if such frames are asked for now.
    #[inline(always)]
    fn native(&self, session: &Session) -> Option<&Native> {
        if !session.hook_state().has_native() {
            return None;
        }
        // SAFETY: null, or written completely before it was stored (Release in `make_native`); never freed.
        unsafe { self.native.load(Ordering::Acquire).as_ref() }
    }

    /// The calling thread's stack, where it was not the [`expected`] one; 0 if it has no frames that are
    /// asked for and known. Also returns what is needed to find the thread's active span.
    #[cold]
    #[inline(never)]
    pub fn unexpected(&self, session: &Session, slot: &Slot, asked: Asked) -> (u32, Works) {
        if has_python_only(asked, slot)
            && let found @ (1.., _) = self.of_python(session, slot)
        {
            return found;
        }
        self.of_parts(session, slot)
    }

    /// The same for a stack of Python frames only: one of the two that are expected, or one in the cache; 0
    /// otherwise.
    fn of_python(&self, session: &Session, slot: &Slot) -> (u32, Works) {
        let found = runtime::of_known_thread(session, &StackSlot::of(slot).python);
        let Some((runtime, state)) = found else { return (0, Works::NOT) };
        let circumstances = Circumstances::now(self.generation, state, 0, false);
        let stack = self.successor_or_cached(slot, (runtime, state), circumstances).unwrap_or(0);
        Works::with_stack(stack, runtime, state)
    }

    /// The stack's id, if it has Python frames only and is one of the two known successors of the last stack,
    /// or in the cache; `None` otherwise.
    fn successor_or_cached(
        &self,
        slot: &Slot,
        (runtime, state): (&Runtime, u64),
        circumstances: Circumstances,
    ) -> Option<u32> {
        let thread = StackSlot::of(slot);
        let mut content = self.kept_by(slot);
        if let Some(Content { stacks, .. }) = &mut content {
            let position = thread.kept.get();
            for number in [position.expected(), stacks.second(position)] {
                let kept = stacks.find(number, circumstances);
                if let Some((kept, ..)) = kept.filter(|(_, frames, _)| has_frames((runtime, state), frames)) {
                    let stack = kept.met();
                    thread.kept.set(stacks.come_to(number, position));
                    return Some(stack);
                }
            }
        }
        // SAFETY: as in `of_parts`.
        let memory = unsafe { Own::new() };
        let fingerprint =
            fingerprint_inside(&memory, &runtime.layout, &runtime.types, (state, 0), &thread.ends).ok()?;
        if fingerprint == 0 {
            return None;
        }
        let found = self.recent.get(fingerprint)?;
        if let Some(Content { stacks, .. }) = content {
            keep(thread, stacks, circumstances, (found, Some((runtime, state)), Default::default()));
        }
        Some(found.stack)
    }

    /// What the calling thread keeps.
    fn kept_by(&self, slot: &Slot) -> Option<&'static mut Content> {
        let store = StackSlot::store(slot, &self.stores, self.generation)?;
        // SAFETY: the calling thread's, which is inside the guard of its hook, and has no other such
        // reference by now.
        Some(unsafe { store.content() })
    }

    /// The same for any stack. Inlined, so that native walks have one frame of ours less to pass.
    #[inline(always)]
    fn of_parts(&self, session: &Session, slot: &Slot) -> (u32, Works) {
        let thread = StackSlot::of(slot);
        let around = torch::around(session.generation);
        let outer = around.map_or(0, |around| around.outside.frame);
        let has_python = session.hook_state().has_python();
        let mut python = has_python.then(|| runtime::of_known_thread(session, &thread.python)).flatten();
        let mut works = Works::NOT;
        if around.is_some_and(|around| !around.outside.caller.is_nobody()) {
            works = Works::ASK;
        }
        if let Some((runtime, state)) = python {
            let of_state = Works::of_state(runtime, state);
            works = if of_state.may_be() { of_state } else { works };
        }
        // SAFETY: the state is the calling thread's, in an interpreter whose layout was checked. Until the
        // hook returns the thread runs no Python, so its frames and the objects they refer to stay.
        let memory = unsafe { Own::new() };
        let (native, operators) = (self.native(session), operators::hash());
        let torch = Beside { native: None, around: around.as_ref(), operators }.with(outer);
        let state = python.map_or(0, |(_, state)| state);
        let circumstances = Circumstances::now(self.generation, state, torch, native.is_some());
        let (mut stacks, mut walk) = match self.kept_by(slot) {
            Some(Content { stacks, last_walk }) => (Some(stacks), Some(last_walk)),
            None => (None, None),
        };
        let position = thread.kept.get();
        let likely = |number: u16| {
            let (kept, frames, words) = stacks.as_ref()?.find(number, circumstances)?;
            let is_it = python.map_or(frames.is_empty(), |python| has_frames(python, frames));
            is_it.then_some(Expected { of: (number, kept), start: &kept.start, words })
        };
        let expected = likely(position.expected());
        let second = || likely(stacks.as_ref()?.second(position));
        let hash = match native {
            Some(native) => native.hash(session, expected, second, walk.as_deref_mut()).map(Some),
            None => expected.or_else(second).map_or(Ok(None), |expected| Err(expected.of)),
        };
        let hash = match hash {
            Ok(hash) => hash,
            Err((number, kept)) => {
                let stack = kept.met();
                if let Some(stacks) = &mut stacks {
                    thread.kept.set(stacks.come_to(number, position));
                }
                if around.is_none() {
                    torch::calls(session.generation, stack);
                }
                return (stack, works);
            }
        };
        let (mut of_python, mut is_read) = (0, true);
        if let Some((runtime, state)) = python {
            match fingerprint_inside(&memory, &runtime.layout, &runtime.types, (state, outer), &thread.ends) {
                Ok(fingerprint) => of_python = fingerprint,
                Err(Damaged) => {
                    session.count(Counter::StacksUnread, 1);
                    (python, is_read) = (None, false);
                }
            }
        }
        let beside = Beside { native: native.zip(hash), around: around.as_ref(), operators };
        let found = match beside.with(of_python) {
            0 => Cached::NONE,
            fingerprint => match self.recent.get(fingerprint) {
                Some(found) => found,
                None => self.not_recent(session, &beside, python, fingerprint),
            },
        };
        let stack = found.stack;
        if around.is_none() && stack != 0 {
            torch::calls(session.generation, stack);
        }
        if is_read
            && let Some(stacks) = stacks
            && let Some(walk) = match (native, &walk) {
                (None, _) => Some(Default::default()),
                (Some(_), walk) => walk.as_ref().and_then(|last| last.words()),
            }
        {
            keep(thread, stacks, circumstances, (found, python, walk));
        }
        (stack, works)
    }

    /// The stack of a fingerprint that is not in the cache. It is put there, unless it could not be read, or
    /// has no id.
    #[cold]
    #[inline(never)]
    fn not_recent(&self, session: &Session, beside: &Beside, python: Python<'_>, fingerprint: u64) -> Cached {
        let hash = python.map_or(Ok(0), |(runtime, state)| {
            // SAFETY: as in `of_parts`.
            let memory = unsafe { Own::new() };
            let outer = beside.around.map_or(0, |around| around.outside.frame);
            hash_inside(&memory, &runtime.layout, &runtime.types, state, outer)
        });
        let (python, of_python) = match hash {
            Ok(hash) => (python, hash),
            Err(Damaged) => {
                session.count(Counter::StacksUnread, 1);
                (None, 0)
            }
        };
        let stack = match beside.with(of_python) {
            0 => 0,
            hash => match self.stacks.get(hash) {
                Some(id) => id,
                None => self.first_sight(session, beside, python, hash),
            },
        };
        // SYNC: the stack's code objects are known by now, so from here on no end of one goes uncounted. A
        // stack that could not be read is not cached: each attempt is counted.
        let cached = (stack != 0 && hash.is_ok()).then(|| self.recent.put(fingerprint, stack)).flatten();
        cached.unwrap_or(Cached { stack, ..Cached::NONE })
    }

    /// The calling thread's position in its frames, and its active span.
    pub fn position(&self, session: &Session) -> Outside {
        let caller = Works::ASK.caller(session);
        let frame = runtime::of_this_thread(session).map_or(0, |(runtime, state)| {
            // SAFETY: as in `of_parts`.
            let memory = unsafe { Own::new() };
            walk::innermost(&memory, &runtime.layout, state).unwrap_or(0)
        });
        Outside { caller, frame, stack: self.native(session).map_or(0, |native| native.end_of_own(session)) }
    }

    #[cold]
    #[inline(never)]
    fn first_sight(&self, session: &Session, beside: &Beside, python: Python<'_>, hash: u64) -> u32 {
        let _errno = KeepErrno::new();
        if self.count.load(Ordering::Relaxed) >= STACKS_MAX || session.definitions_are_half_full() {
            session.count(Counter::StacksFull, 1);
            return 0;
        }
        let Some(buffer) = self.take_buffer() else {
            session.count(Counter::StacksFull, 1);
            return 0;
        };
        // SAFETY: this thread took the buffer; the guard of the hook keeps a signal handler's out.
        let parts = unsafe { &mut *buffer.parts.get() };
        let defined = self.define(session, beside, python, parts);
        // SYNC: pairs with the Acquire exchange in `take_buffer`: the next owner's writes come after ours.
        buffer.is_taken.store(0, Ordering::Release);
        let Ok(id) = defined else {
            session.count(Counter::StacksUnread, 1);
            return 0;
        };
        self.count.fetch_add(1, Ordering::Relaxed);
        // Another thread may have defined the same stack in the meantime. Then both definitions are
        // written, and this call uses the one that entered the table first or, if the table is full, its
        // own.
        match self.stacks.get_or_define(hash, || id) {
            0 => id,
            known => known,
        }
    }

    fn take_buffer(&self) -> Option<&StackBuffer> {
        for _ in 0..TRIES {
            for buffer in self.buffers {
                if buffer.is_taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Some(buffer);
                }
            }
            core::hint::spin_loop();
        }
        None
    }

    fn define(
        &self,
        session: &Session,
        beside: &Beside,
        python: Python<'_>,
        Parts { pairs, python: python_frames, native: natives_buffer, text }: &mut Parts,
    ) -> Result<u32, Damaged> {
        let (mut count, mut outermost) = (0, Outermost::Whole);
        let around = beside.around;
        let outer = around.map_or(0, |around| around.outside.frame);
        if outer != 0 {
            outermost = Outermost::Elsewhere;
        }
        if let Some((runtime, state)) = python {
            let end =
                self.codes.write_frames(&Checked::new(), session, runtime, (state, outer), text, |step| {
                    match step {
                        StackItem::Frame(code, at) => {
                            if let Some(to) = python_frames.get_mut(count) {
                                *to = PythonFrame { code, at, entry: FrameBoundary::NONE };
                                count += 1;
                            }
                        }
                        StackItem::Entry(at) => {
                            // Two entries without a frame between them: the inner one gives the address where
                            // the frames begin.
                            let last = count.checked_sub(1).and_then(|last| python_frames.get_mut(last));
                            if let Some(last) = last.filter(|last| last.entry == FrameBoundary::NONE) {
                                last.entry = FrameBoundary::at(at);
                            }
                        }
                    }
                })?;
            if end == ChainEnd::Cut {
                outermost = Outermost::Cut;
            }
        }
        let (natives, end) = match beside.native {
            Some((native, _)) => native.write_frames(session, natives_buffer),
            None => (0, native_walk::End::Outermost),
        };
        // On the thread that began the pass, the frames outside the pass are already in the calling stack.
        let natives = natives_buffer.get(..natives).unwrap_or_default();
        let limit = around.map_or(0, |around| around.outside.stack);
        let is_on_it = natives.first().is_some_and(|frame| frame.end < limit);
        let inside = natives.iter().position(|frame| frame.end > limit).filter(|_| is_on_it);
        let (natives, end) = match inside {
            Some(inside) => (natives.get(..inside).unwrap_or_default(), native_walk::End::Outermost),
            None => (natives, end),
        };
        // Frames arrive innermost first and are written outermost first, so the buffer is filled from its
        // end.
        let mut first = FIELDS_MAX;
        let mut is_cut = false;
        let mut put = |first: &mut usize, code: u32, at: u64| {
            *first = first.saturating_sub(2);
            if let Some([to_code, to_at]) = pairs.get_mut(*first..*first + 2) {
                (*to_code, *to_at) = (code.into(), at);
            }
        };
        // A stack outside any backward pass only needs the pair for the mark of a cut.
        let kept_back = 2 * if around.is_some() { PAIRS_BEFORE } else { 1 };
        if beside.operators != 0 {
            operators::each_name(session.generation, |name| put(&mut first, name, 0));
        }
        merge((natives, end), (python_frames.get(..count).unwrap_or_default(), outermost), |code, at| {
            match first > kept_back {
                true => put(&mut first, code, at),
                false => is_cut = true,
            }
        });
        if is_cut {
            put(&mut first, 0, 0);
        }
        if let Some(around) = around {
            // A node that is written in Python has Python frames of its own, which are more precise.
            let node = around.node.filter(|node| count == 0 || node.mangled() != PYTHON_NODE);
            if let Some(node) = node {
                let name = self.name(session, node.hash, node::readable(node.mangled(), text));
                put(&mut first, name, u64::from(name == 0));
            }
            let [before, after] = around.made_between;
            if before != 0 {
                put(&mut first, before, after.into());
            }
            let autograd = self.name(session, u64::MAX, AUTOGRAD);
            put(&mut first, autograd, u64::from(autograd == 0));
            if around.caller != 0 {
                put(&mut first, around.caller, 0);
            }
        }
        Ok(session.define(kind::STACK, pairs.get(first..).unwrap_or_default(), b""))
    }

    /// The definition of a name, keyed by `number`.
    #[inline(always)]
    pub fn name(&self, session: &Session, number: u64, name: &[u8]) -> u32 {
        self.names.get_or_define(number, || Session::define(session, kind::NAME, &[], name))
    }
}

/// The parts of a stack other than Python's frames.
struct Beside<'a> {
    native: Option<(&'a Native, u64)>,
    around: Option<&'a Around>,
    operators: u64,
}

impl Beside<'_> {
    /// Combines these parts with the number of Python's frames; 0 if all are empty.
    #[inline(always)]
    fn with(&self, of_python: u64) -> u64 {
        let own = match self.native {
            None => of_python,
            Some((_, native)) => fold(of_python, native).max(1),
        };
        let hash = match self.around {
            None => own,
            Some(around) => with_pass(own, around),
        };
        match self.operators {
            0 => hash,
            operators => fold(hash, operators).max(1),
        }
    }
}

/// Whether the thread of that Python state, the calling one, has these frames. Not inlined: only
/// [`expected_python`] needs that, and compares for itself.
#[inline(never)]
fn has_frames((runtime, state): (&Runtime, u64), frames: &[ReadWord]) -> bool {
    // SAFETY: as in `Stacks::of_parts`.
    known_chain::is(&unsafe { Own::new() }, &runtime.layout, state, frames)
}

/// Keeps a stack that the thread has, if it is in the cache and its Python frames can be recognised.
fn keep(
    thread: &StackSlot,
    stacks: &mut KeptStacks,
    circumstances: Circumstances,
    (found, python, walk): (Cached, Python<'_>, (&[ReadWord], NativeStart)),
) {
    if found.entry == 0 || python.is_some_and(|(runtime, _)| !known_chain::can_be_known(&runtime.layout)) {
        return;
    }
    let write = |into: &mut [ReadWord]| match python {
        // SAFETY: as in `Stacks::of_parts`.
        Some((runtime, state)) => known_chain::write(&unsafe { Own::new() }, &runtime.layout, state, into),
        None => Some(0),
    };
    thread.kept.set(stacks.keep(thread.kept.get(), found, circumstances, write, walk));
}

/// The number of a stack inside a backward pass; `own` is the number of the thread's own frames.
#[inline(never)]
fn with_pass(own: u64, around: &Around) -> u64 {
    let node = around.node.map_or(0, |node| node.hash);
    let [before, after] = around.made_between;
    // The calling stack is folded in as one frame of its own kind, and so are the two of the forward pass.
    let inside = match before {
        0 => own,
        _ => fold(own, u64::from(before) << 32 | u64::from(after)),
    };
    fold(fold(inside, u64::from(around.caller) | 1 << 63), node).max(1)
}
