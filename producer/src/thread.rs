//! A thread's slot: the guard against recursion into our own hooks, the thread's ring, its cost samples.
//!
//! A slot is one thread-local of plain cells without a destructor, in [`slot_memory`](crate::slot_memory). It
//! can therefore be used in a signal handler, in a thread-local destructor that runs after ours, and in a
//! thread that the C library did not make.
//!
//! A `pthread` key reports the end of a thread; the thread's ring is then free again. If a later
//! thread-local destructor calls a hook, the thread takes a ring again, and the key returns that ring in
//! the next round of destructors. After the C library's last round (the fourth) the ring stays taken for
//! ever: one ring for each such thread.
//!
//! A thread writes its own id to the ring before its first entry. If the ring was full when the thread took
//! it over, the thread's entries are dropped and counted until the id fits. The entries that a layer above
//! writes by [`Callbacks::catch_up`] follow the id.

use core::cell::{Cell as Shared, UnsafeCell};
use core::hint::cold_path;
use core::mem::{MaybeUninit, align_of, size_of};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use gputrace_wire::cell::Cell;
use gputrace_wire::clock::mark::ThreadBegin;
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::{kind, role};
use gputrace_wire::ring::Producer;
use gputrace_wire::segment::{RingHeader, ring_state};

use crate::fork::StateOfProcess;
use crate::hook_state::HookState;
use crate::memory::prefetch_to_write;
use crate::on_full::{self, WaitedSoFar};
use crate::session::Session;
use crate::stderr::KeepErrno;
use crate::{clock, fork, session, slot_memory, system};

/// One hook in 61 measures its own cost; the two additional clock reads then cost almost nothing on
/// average. The period is prime to the 64 cells of a page. Otherwise all samples would write to the same
/// cell of a page, and on a ring's first lap that could be the cell that faults.
pub const SAMPLE_EVERY: u32 = 61;

/// Not a valid generation, and different from 0, the generation of a process without a session.
const NONE: u32 = u32::MAX;

/// A generation; zeroed memory is [`NONE`].
#[derive(Debug)]
struct Generation(Shared<u32>);

impl Generation {
    #[inline(always)]
    fn get(&self) -> u32 {
        !self.0.get()
    }

    fn set(&self, generation: u32) {
        self.0.set(!generation);
    }
}

/// What of the process a thread's next entry is ready for; zeroed memory is for nothing. Atomic, since a
/// signal handler's ranges [take it back](Slot::must_catch_up).
#[derive(Debug)]
struct Ready(AtomicU64);

impl Ready {
    /// The session generation for which the thread has a ring, has written its id to it and has [caught
    /// up](Callbacks::catch_up); else [`NONE`].
    #[inline(always)]
    fn generation(&self) -> u32 {
        !self.0.load(Ordering::Relaxed) as u32
    }

    /// For no launches in particular: what hooks do is never all bits, of which some exclude others.
    fn set_generation(&self, generation: u32) {
        self.0.store(
            StateOfProcess::new(generation, HookState::from_word(u32::MAX)).to_word(),
            Ordering::Relaxed,
        );
    }

    /// For launches while what hooks do is this, if it is ready for that generation.
    fn add_launches(&self, generation: u32, state: HookState) {
        let found = self.0.load(Ordering::Relaxed);
        if !found as u32 == generation {
            let new = StateOfProcess::new(generation, state).to_word();
            // If a signal handler has changed it since, it stays as the handler left it.
            let _ = self.0.compare_exchange(found, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// Zero is valid for every field, and a new slot. The order is that of use: a launch without stacks touches
/// the first two cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot {
    inside: Shared<bool>,
    /// Whether the thread may be made to wait while its ring is full: the program's threads may, ours may
    /// not.
    may_wait: Shared<bool>,
    /// Whether the thread holds a lock of the program's, so that it does not wait in any case.
    holds_lock: Shared<bool>,
    /// Calls since the last one whose hook measured its own cost.
    calls: Shared<u32>,
    ready: Ready,
    header: Shared<Option<&'static RingHeader>>,
    /// The vendor layer's data about the thread and its current call.
    pub vendor: Area<5>,
    ring: UnsafeCell<MaybeUninit<Producer<'static>>>,
    /// The `callstack` crate's data about the thread.
    pub callstack: Area<61>,
    /// The session generation for which the thread has written its id to its ring, caught up or not.
    named: Generation,
    /// The session generation that `ring` and `header` belong to, whether or not the thread's id is in the
    /// ring.
    attached: Shared<u32>,
    /// The id of the thread's own definition.
    thread: Shared<u32>,
    waited: WaitedSoFar,
    /// What the vendor layer keeps of the call under way.
    pub kept: Area<5>,
    callbacks: Shared<Option<&'static Callbacks>>,
}

/// Memory in a slot for a layer above this crate, the only one that knows the content's type. Zeroed at
/// first.
#[derive(Debug)]
pub struct Area<const WORDS: usize>(UnsafeCell<[u64; WORDS]>);

impl<const WORDS: usize> Area<WORDS> {
    /// The content.
    ///
    /// # Safety
    ///
    /// The caller guarantees that zero is a valid `T`, and that nobody uses this area as another type.
    #[inline(always)]
    pub unsafe fn content<T>(&self) -> &T {
        const { assert!(size_of::<T>() <= WORDS * size_of::<u64>() && align_of::<T>() <= align_of::<u64>()) };
        // SAFETY: large enough and aligned as checked above; the caller guarantees the rest.
        unsafe { &*self.0.get().cast::<T>() }
    }
}

/// Writes an entry to the thread's ring; false if it does not fit.
pub type Write<'w> = &'w mut dyn FnMut(&[Cell]) -> bool;

/// Functions of a layer above, called when a thread's ring changes and when the thread ends. Not on the
/// path of an event.
#[derive(Debug)]
pub struct Callbacks {
    /// The thread has a new ring, which contains no entry of the thread but its id.
    pub ring_is_new: fn(&Slot),
    /// Writes the entries that must precede the thread's next one; false if they do not fit.
    pub catch_up: fn(&Slot, &Session, write: Write<'_>) -> bool,
    pub thread_ends: fn(&Slot),
}

/// The calling thread's slot.
#[inline(always)]
pub fn with<R>(body: impl FnOnce(&Slot) -> R) -> R {
    const { assert!(size_of::<Slot>() <= slot_memory::BYTES && align_of::<Slot>() <= slot_memory::ALIGNMENT) };
    // SAFETY: memory of that size and alignment, which lives as long as the thread and is this thread's
    // alone; it was zero at first, which is a valid slot, and only this function uses it.
    body(unsafe { &*slot_memory::of_this_thread().cast::<Slot>() })
}

/// The same, once this process has started a session; `None` before, and in a forked child.
#[inline(always)]
pub fn with_known<R>(body: impl FnOnce(&Slot) -> R) -> Option<R> {
    let memory = slot_memory::of_this_thread_if_known()?;
    // SAFETY: as in `with`.
    Some(body(unsafe { &*memory.cast::<Slot>() }))
}

/// The result of [`Slot::offer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    Written,
    /// The thread's ring is full.
    Full,
    /// The thread has no ring, and none can be taken now.
    NoRing,
    /// The session is over, or belongs to another process.
    Over,
}

/// While it exists, hooks on this thread pass through. Its drop restores the previous state.
#[derive(Debug)]
pub struct Inside<'s>(&'s Slot);

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.0.inside.set(false);
    }
}

impl Slot {
    /// Enters the guard; `None` if the thread is already inside.
    #[inline(always)]
    pub fn enter(&self) -> Option<Inside<'_>> {
        if self.inside.replace(true) {
            return None;
        }
        // A signal handler on this thread must see the guard before it sees anything that follows.
        compiler_fence(Ordering::SeqCst);
        Some(Inside(self))
    }

    /// Makes an [`Inside`] anew that was passed to `mem::forget`.
    #[inline(always)]
    pub fn inside_again(&self) -> Inside<'_> {
        Inside(self)
    }

    /// Keeps this thread, one of ours, inside the guard for life.
    pub fn enter_for_life(&self) {
        self.inside.set(true);
    }

    pub fn is_inside(&self) -> bool {
        self.inside.get()
    }

    /// Prefetches the memory that the thread's next entry will be written to.
    #[inline(always)]
    pub fn expect_entry(&self) {
        // In a forked child the header may not be mapped, nor the ring. A prefetch does nothing then.
        if let Some(header) = self.header.get() {
            prefetch_to_write(&header.written);
            // SAFETY: as in `emit`.
            prefetch_to_write(unsafe { (*self.ring.get()).assume_init_ref() }.next());
        }
    }

    /// As [`call_begins`](Slot::call_begins), without asking whether there is a ring. Prefetches the memory
    /// that the thread's next entry will be written to.
    ///
    /// # Safety
    ///
    /// The caller guarantees that the thread is inside the guard, and had [caught up](Slot::is_caught_up)
    /// after it entered.
    #[inline(always)]
    pub unsafe fn launch_begins(&self, ticks: u64) {
        // SAFETY: the caller guarantees it.
        let header = unsafe { self.header_once_caught_up() };
        header.in_call.store(time_of_call(ticks), Ordering::Relaxed);
        // SAFETY: as in `emit`.
        prefetch_to_write(unsafe { (*self.ring.get()).assume_init_ref() }.next());
    }

    /// As [`call_ends`](Slot::call_ends), without asking whether there is a ring.
    ///
    /// # Safety
    ///
    /// As for [`launch_begins`](Slot::launch_begins).
    #[inline(always)]
    pub unsafe fn launch_ends(&self) {
        // SYNC: pairs with the Acquire load in `Rings::calls_under_way`.
        // SAFETY: the caller guarantees it.
        unsafe { self.header_once_caught_up() }.in_call.store(0, Ordering::Release);
    }

    /// Notes that the thread is about to call the driver, and when; false, and nothing is noted, if it has no
    /// ring of the session.
    #[inline(always)]
    pub fn call_begins(&self, ticks: u64) -> bool {
        let header = self.header_of_session();
        if let Some(header) = header {
            header.in_call.store(time_of_call(ticks), Ordering::Relaxed);
        }
        header.is_some()
    }

    /// Notes that the call has returned.
    #[inline(always)]
    pub fn call_ends(&self) {
        if let Some(header) = self.header_of_session() {
            // SYNC: as in `launch_ends`.
            header.in_call.store(0, Ordering::Release);
        }
    }

    /// The header of the thread's ring, whether or not the thread has caught up. None in a forked child,
    /// where its memory is not mapped.
    #[inline(always)]
    fn header_of_session(&self) -> Option<&'static RingHeader> {
        self.header.get().filter(|_| self.attached.get() == fork::generation())
    }

    /// The header of the thread's ring, without asking whether there is one.
    ///
    /// # Safety
    ///
    /// The caller guarantees that the thread is inside the guard, and had caught up at some moment since it
    /// entered.
    #[inline(always)]
    unsafe fn header_once_caught_up(&self) -> &'static RingHeader {
        debug_assert!(self.header.get().is_some());
        // SAFETY: `begin` lets a thread catch up only with a header. Only `attach` and `detach` take a header
        // away, and both first clear `ready`. They run inside the guard, so a signal handler runs neither
        // meanwhile; and `attach` does nothing where there is a ring of the session.
        unsafe { self.header.get().unwrap_unchecked() }
    }

    /// The header of the thread's ring, if the thread has [caught up](Slot::is_caught_up): in a forked child,
    /// a header of another generation points to memory that is not mapped.
    #[inline(always)]
    fn caught_up_header(&self) -> Option<&'static RingHeader> {
        self.header.get().filter(|_| self.is_caught_up())
    }

    /// Counts the call, and returns whether its hook measures its own cost. To be called once a call.
    #[inline(always)]
    pub fn samples_cost(&self) -> bool {
        let calls = self.calls.get().wrapping_add(1);
        if calls == SAMPLE_EVERY {
            cold_path();
            self.calls.set(0);
            return true;
        }
        self.calls.set(calls);
        false
    }

    /// Whether [`Slot::samples_cost`] will say so of the next call.
    #[inline(always)]
    pub fn is_next_sampled(&self) -> bool {
        self.calls.get() == SAMPLE_EVERY - 1
    }

    /// Whether [`Slot::samples_cost`] has said so of the call under way. Only after it.
    #[inline(always)]
    pub fn is_sampled(&self) -> bool {
        self.calls.get() == 0
    }

    /// The processor's counter if [`is_sampled`](Slot::is_sampled), else 0. To be called only where that
    /// counter is the clock.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn counter_if_sampled(&self) -> u64 {
        clock::counter_if_zero(self.calls.get())
    }

    /// The same, the counter's lower half. One that happens to be 0 reads as not sampled.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn half_counter_if_sampled(&self) -> u32 {
        clock::half_counter_if_zero(self.calls.get())
    }

    /// Adds a measured cost.
    pub fn add_cost(&self, ticks: u64) {
        if let Some(header) = self.caught_up_header() {
            add(&header.sampled_hooks, 1);
            add(&header.sampled_ticks, ticks);
        }
    }

    /// Adds how long a sampled launch call took, inside or outside of a window of device times, and how long
    /// its hook did.
    pub fn add_launch(&self, is_inside: bool, ticks: u64, hook_ticks: u64) {
        if let Some(header) = self.caught_up_header() {
            let (calls, all) = if is_inside {
                add(&header.inside_hook_ticks, hook_ticks);
                (&header.inside_calls, &header.inside_ticks)
            } else {
                (&header.outside_calls, &header.outside_ticks)
            };
            add(calls, 1);
            add(all, ticks);
        }
    }

    /// Counts a launch that was made in a window of device times.
    #[inline(always)]
    pub fn count_window_launch(&self, correlation: u32) {
        if let Some(header) = self.caught_up_header() {
            add(&header.window_launches, 1);
            header.window_latest.store(correlation, Ordering::Relaxed);
        }
    }

    /// Prefetches what [`count_launch`](Slot::count_launch) writes.
    #[inline(always)]
    pub fn expect_count(&self) {
        if let Some(header) = self.caught_up_header() {
            prefetch_to_write(&header.counted_launches);
        }
    }

    /// Counts a launch that is not recorded. Nothing if the thread has no ring of the session.
    #[inline(always)]
    pub fn count_launch(&self) {
        if let Some(header) = self.caught_up_header() {
            add(&header.counted_launches, 1);
        }
    }

    /// Prefetches what [`count_paused_launch`](Slot::count_paused_launch) writes.
    #[inline(always)]
    pub fn expect_paused_launch(&self) {
        // In a forked child the header may not be mapped. A prefetch of it does nothing then.
        if let Some(header) = self.header.get() {
            prefetch_to_write(&header.paused_launches);
        }
    }

    /// Counts a launch that the session passes over, paused. False, and nothing is counted, if the thread has
    /// no ring or has not caught up. No locked instruction: a core would wait there until its stores are
    /// done, those of the driver to the device among them.
    #[inline(always)]
    pub fn count_paused_launch(&self) -> bool {
        let header = self.caught_up_header();
        if let Some(header) = header {
            add(&header.paused_launches, 1);
        }
        header.is_some()
    }

    /// Counts such a launch in the session's counter, for a thread that has no ring or has not caught up.
    pub fn count_paused_launch_without_ring(&self, session: &'static Session) {
        session.count(Counter::PausedLaunches, 1);
        // Makes the thread ready for its next launches; only where `calls` is 0 or 1 (a thread's first launch
        // has 1), since it takes long to find that there is no ring. It does not wait for space in one.
        if self.calls.get() <= 1 && session.is_current() && self.attach(session, role::PROGRAM) {
            self.begin(session);
        }
    }

    /// Notes CUPTI's correlation id of a call between two windows of device times.
    pub fn note_latest(&self, correlation: u32) {
        if let Some(header) = self.caught_up_header() {
            header.window_latest.store(correlation, Ordering::Relaxed);
        }
    }

    /// Writes one entry to the thread's ring, taking a ring first if it has none. A full ring
    /// drops the entry and counts it.
    #[inline(always)]
    pub fn emit(&self, session: &'static Session, cells: &[Cell]) -> bool {
        // The generation page is compared, not the session: a signal handler may have forked since the hook
        // began, and the ring is then not mapped. The slow path does not get the cells, so that they can
        // stay in registers.
        if !self.is_caught_up() && !self.begin_or_count(session) {
            return false;
        }
        let Some(header) = self.header.get() else { return false };
        // SAFETY: a header is only set together with a ring. The ring belongs to this thread, and the guard
        // keeps a signal handler's hook out while the reference exists.
        let ring = unsafe { (*self.ring.get()).assume_init_mut() };
        let fits = ring.push(cells) || self.waited_for_space(session, cells.len()) && ring.push(cells);
        add(if fits { &header.written } else { &header.dropped }, 1);
        fits
    }

    /// The same for an entry of one cell. `cell` is called once there is space, so that a hook need not hold
    /// the entry's values until then. Only inside the guard.
    #[inline(always)]
    pub fn emit_one(&self, session: &'static Session, cell: impl FnOnce() -> Cell) {
        if self.is_caught_up() || self.begin_or_count(session) {
            // SAFETY: the thread has caught up, or has done so in `begin_or_count`.
            unsafe { self.emit_one_once_caught_up(cell) };
        }
    }

    /// The same, without asking whether the thread has caught up.
    ///
    /// # Safety
    ///
    /// As for [`launch_begins`](Slot::launch_begins).
    #[inline(always)]
    pub unsafe fn emit_one_once_caught_up(&self, cell: impl FnOnce() -> Cell) {
        // Read where it is used, so that it need not be kept.
        // SAFETY: the caller guarantees it.
        let header = || unsafe { self.header_once_caught_up() };
        // SAFETY: as in `emit`.
        let ring = unsafe { (*self.ring.get()).assume_init_mut() };
        let space = match ring.space_for_one() {
            Some(space) => space,
            None => {
                cold_path();
                let has_space = session::published().is_some_and(|session| self.waited_for_space(session, 1));
                match has_space.then(|| ring.space_for_one()).flatten() {
                    Some(space) => space,
                    None => return dropped(header()),
                }
            }
        };
        space.fill(cell());
        add(&header().written, 1);
    }

    /// What `body` writes is dropped and counted where the ring is full, even if the user asked for waiting:
    /// the thread holds a lock of the program's, which other threads may need.
    pub fn without_waiting(&self, body: impl FnOnce()) {
        self.holds_lock.set(true);
        body();
        self.holds_lock.set(false);
    }

    /// Writes `ahead`, on which the next entry of `cells` cells depends, if both fit together. Otherwise
    /// writes nothing and counts the next entry as dropped.
    pub fn emit_ahead(&self, session: &'static Session, ahead: &[Cell], cells: usize) -> bool {
        if !self.is_caught_up() && !self.begin_or_count(session) {
            return false;
        }
        let Some(header) = self.header.get() else { return false };
        let needed = ahead.len() + cells;
        // SAFETY: as in `emit`. Room that is there stays, since nobody else writes.
        let has_space = || unsafe { (*self.ring.get()).assume_init_mut() }.has_space(needed as u64);
        let fits = (has_space() || self.waited_for_space(session, needed) && has_space())
            && self.push(header, ahead);
        if !fits {
            add(&header.dropped, 1);
        }
        fits
    }

    /// Whether the thread has a ring of the current session, with everything that must precede its next
    /// entry.
    #[inline(always)]
    pub fn is_caught_up(&self) -> bool {
        self.ready.generation() == fork::generation()
    }

    /// Whether the thread has caught up with that state's session, and its launches are
    /// [known](Slot::knows_launches) to be recorded by few steps in it.
    #[inline(always)]
    pub fn is_ready_for_launches(&self, state: StateOfProcess) -> bool {
        self.ready.0.load(Ordering::Relaxed) == state.to_word()
    }

    /// Notes that launches are recorded by few steps as long as what hooks do is this, and the thread has
    /// caught up, as it has now.
    pub fn knows_launches(&self, state: HookState) {
        self.ready.add_launches(fork::generation(), state);
    }

    /// Makes the next entry of the thread call [`Callbacks::catch_up`] first.
    pub fn must_catch_up(&self) {
        self.ready.set_generation(NONE);
    }

    /// Sets the callbacks. Always the same ones: those of one layer above.
    pub fn set_callbacks(&self, callbacks: &'static Callbacks) {
        self.callbacks.set(Some(callbacks));
    }

    /// Waits until the ring has space, if the user asked for waiting; true if `cells` cells fit now.
    #[cold]
    #[inline(never)]
    fn waited_for_space(&self, session: &'static Session, cells: usize) -> bool {
        if !on_full::waits() || !self.may_wait.get() || self.holds_lock.get() {
            return false;
        }
        let Some(header) = self.header.get() else { return false };
        let tail = || header.tail.load(Ordering::Relaxed);
        let has_space = || {
            // Only this thread writes the head. The tail is the consumer's and not trusted: if it is false,
            // the entry does not fit.
            let used = header.head.load(Ordering::Relaxed).wrapping_sub(tail());
            used.saturating_add(cells as u64) <= header.capacity_cells.load(Ordering::Relaxed)
        };
        self.waited.wait(session, tail, has_space)
    }

    /// As [`emit`](Slot::emit), but does not count a loss: for a writer that may offer the entry again.
    pub fn offer(&self, session: &'static Session, cells: &[Cell]) -> Offer {
        match (self.ready(session), self.header.get()) {
            (Offer::Written, Some(header)) if self.push(header, cells) => Offer::Written,
            (Offer::Written, _) => Offer::Full,
            (not_ready, _) => not_ready,
        }
    }

    /// Whether the thread's next entry may be written; counts the entry as lost if not.
    #[cold]
    #[inline(never)]
    pub fn begin_or_count(&self, session: &'static Session) -> bool {
        let ready = self.ready(session);
        match (ready, self.header.get()) {
            (Offer::Full, Some(header)) => add(&header.dropped, 1),
            (Offer::NoRing, _) => session.count(Counter::NoRing, 1),
            _ => {}
        }
        ready == Offer::Written
    }

    /// Ensures that the thread has a ring with its id in it; returns `Written` if so.
    fn ready(&self, session: &'static Session) -> Offer {
        if !session.is_current() {
            Offer::Over
        } else if !self.attach(session, role::PROGRAM) {
            Offer::NoRing
        } else if !(self.begin(session) || self.waited_for_space(session, 1) && self.begin(session)) {
            Offer::Full
        } else {
            Offer::Written
        }
    }

    /// Writes the thread's id to its ring, once, and then the entries that must follow the id; false if
    /// they do not fit.
    fn begin(&self, session: &Session) -> bool {
        if self.ready.generation() == self.attached.get() {
            return true;
        }
        let Some(header) = self.header.get() else { return false };
        let callbacks = self.callbacks.get();
        if self.named.get() != self.attached.get() {
            let begin = ThreadBegin { thread: self.thread.get(), ticks: clock::now() };
            if !self.push(header, &[begin.to_cell()]) {
                return false;
            }
            self.named.set(self.attached.get());
            if let Some(callbacks) = callbacks {
                (callbacks.ring_is_new)(self);
            }
        }
        let mut write = |cells: &[Cell]| self.push(header, cells);
        let begun = callbacks.is_none_or(|callbacks| (callbacks.catch_up)(self, session, &mut write));
        if begun {
            self.ready.set_generation(self.attached.get());
        }
        begun
    }

    /// Writes an entry to the thread's ring, and counts it if it fits.
    fn push(&self, header: &RingHeader, cells: &[Cell]) -> bool {
        // SAFETY: as in `emit`: the caller got the header from the slot.
        let fits = unsafe { (*self.ring.get()).assume_init_mut() }.push(cells);
        if fits {
            add(&header.written, 1);
        }
        fits
    }

    /// Ensures that this thread has a ring of the session; false if there is no free ring.
    #[cold]
    #[inline(never)]
    pub fn attach(&self, session: &'static Session, role: u64) -> bool {
        if self.attached.get() == session.generation {
            return true;
        }
        let _errno = KeepErrno::new();
        // The slot's contents belong to another session; in a forked child their memory is not mapped.
        self.ready.set_generation(NONE);
        self.named.set(NONE);
        self.attached.set(0);
        self.header.set(None);
        let taken = if role == role::PROGRAM { session.take_ring() } else { session.reserved_ring(role) };
        let Some((header, ring)) = taken else { return false };
        // SAFETY: nobody else uses this thread's slot; the old value needs no drop.
        unsafe { (*self.ring.get()).write(Producer::new(ring)) };
        self.header.set(Some(header));
        self.attached.set(session.generation);
        self.may_wait.set(role == role::PROGRAM);
        if role == role::PROGRAM {
            watch_end(self);
        }
        let (name, tid) = (system::thread_name(), system::gettid());
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(0);
        let text = name.get(..length).unwrap_or_default();
        self.thread.set(session.define(kind::THREAD, &[tid as u64, role], text));
        true
    }

    /// Gives the ring back. The next owner continues from its positions. Inside the guard, so that a signal
    /// handler does not make the thread ready again while its header is taken away.
    fn detach(&self) {
        let _inside = self.enter();
        self.ready.set_generation(NONE);
        self.named.set(NONE);
        if let Some(callbacks) = self.callbacks.get() {
            (callbacks.thread_ends)(self);
        }
        let Some(header) = self.header.take() else { return };
        // In a forked child the ring is the parent's and is not mapped.
        if self.attached.replace(0) == fork::generation() {
            header.in_call.store(0, Ordering::Relaxed);
            // SYNC: pairs with the Acquire exchange in `Rings::take`.
            header.state.store(ring_state::FREE, Ordering::Release);
        }
    }
}

/// A moment as ring headers have it for a call under way: in units of 1024 ticks, and never 0, which stands
/// for no call.
#[inline(always)]
pub fn time_of_call(ticks: u64) -> u32 {
    (ticks >> 10) as u32 | 1
}

#[cold]
#[inline(never)]
fn dropped(header: &RingHeader) {
    add(&header.dropped, 1);
}

/// Adds to a counter of which this thread is the only writer.
#[inline(always)]
fn add(counter: &gputrace_wire::atomic::AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// The key plus one; 0 until the key is made.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Makes the key that reports the end of threads. Called early, so that the key's number is small: the C
/// library stores the values of the first 32 keys in the thread itself and allocates memory for later ones.
pub fn prepare() {
    if KEY.load(Ordering::Acquire) != 0 {
        return;
    }
    let mut key = 0;
    // SAFETY: the pointer is to a live key; the destructor has the right type.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ended)) } == 0
        && KEY.compare_exchange(0, key + 1, Ordering::AcqRel, Ordering::Acquire).is_err()
    {
        // SAFETY: the key was made above and nobody has seen it.
        unsafe { libc::pthread_key_delete(key) };
    }
}

/// Registers the slot's thread, so that its end is reported.
pub fn watch_end(slot: &Slot) {
    if let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) {
        // SAFETY: the key was made by `prepare`; the value is only compared with null.
        unsafe { libc::pthread_setspecific(key, core::ptr::from_ref(slot).cast()) };
    }
}

unsafe extern "C" fn thread_ended(_: *mut libc::c_void) {
    with(Slot::detach);
}
