//! A thread's frames as one number: the id of a stack that was defined once.
//!
//! The steady path is a walk that mixes each frame's code object, its identity and its
//! instruction into a hash of 64 bits, and one look-up. Two stacks of one program collide with a chance of
//! about n²/2^65: 10^-10 for sixty thousand.
//!
//! What is kept is bounded: 2 MiB of tables at most for 65 536 stacks and half as many code objects, touched where
//! used, and half of the definitions area (32 MiB), so that stacks never crowd out the names of kernels.
//! When either is full, new stacks are 0 and counted, and old ones go on being known.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_wire::counter::Counter;
use gputrace_wire::definition::{FIELDS_MAX, TEXT_MAX, kind};

use super::code::{self, Define, Text};
use super::identity::{self, Known, fold};
use super::layout::Layout;
use super::lives;
use super::memory::{Checked, Memory, Own};
use super::runtime::{self, Runtime};
use super::walk::{Damaged, End, Frame, Types, frames, position};
use crate::handles::Handles;
use crate::memory::{self, Zeroed};
use crate::session::Session;
use crate::stderr::KeepErrno;

const STACKS_MAX: u32 = 1 << 16;
const STACK_SLOTS: usize = 1 << 17;
const CODE_SLOTS: usize = 1 << 16;
/// Threads that define a stack at the same moment; it takes them some microseconds.
const ROOMS: usize = 8;
/// How often a thread looks for one of these rooms.
const TRIES: u32 = 20_000;

/// Where a stack is put together.
struct Room {
    is_taken: AtomicU32,
    pairs: UnsafeCell<[u64; FIELDS_MAX]>,
    text: UnsafeCell<Text>,
}

// SAFETY: what is in the cells is touched by whoever took the room, and by one at a time.
unsafe impl Sync for Room {}
// SAFETY: all of it is numbers.
unsafe impl Zeroed for Room {}

/// A session's stacks.
pub struct Stacks {
    codes: Handles,
    stacks: Handles,
    rooms: &'static [Room],
    count: AtomicU32,
}

impl Define for Session {
    fn define(&self, kind: u16, fields: &[u64], text: &[u8]) -> u32 {
        Session::define(self, kind, fields, text)
    }
}

impl Stacks {
    pub fn new() -> Option<Stacks> {
        Some(Stacks {
            codes: Handles::new(CODE_SLOTS)?,
            stacks: Handles::new(STACK_SLOTS)?,
            rooms: memory::map(ROOMS)?,
            count: AtomicU32::new(0),
        })
    }

    /// The stack of the calling thread now; 0 if it has no Python frames, or they are not known.
    #[inline(always)]
    pub fn of_this_thread(&self, session: &Session) -> u32 {
        let Some(runtime) = runtime::current() else { return 0 };
        let state = runtime.thread_state();
        if state == 0 || !runtime.is_trusted(session, state) {
            return 0;
        }
        // SAFETY: the state is the calling thread's, of an interpreter whose layout was checked;
        // until the hook returns the thread runs no Python, so its frames and what they name stay.
        let memory = unsafe { Own::new() };
        match hash(&memory, &runtime.layout, &runtime.types, state) {
            Ok(0) => 0,
            Ok(hash) => match self.stacks.get(hash) {
                Some(id) => id,
                None => self.first_sight(session, runtime, state, hash),
            },
            Err(Damaged) => {
                session.count(Counter::StacksUnread, 1);
                0
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn first_sight(&self, session: &Session, runtime: &Runtime, state: u64, hash: u64) -> u32 {
        let _errno = KeepErrno::new();
        if self.count.load(Ordering::Relaxed) >= STACKS_MAX || session.definitions_are_half_full() {
            session.count(Counter::StacksFull, 1);
            return 0;
        }
        let Some(room) = self.room() else {
            session.count(Counter::StacksFull, 1);
            return 0;
        };
        // SAFETY: this thread took the room; the guard of the hook keeps a signal handler's out.
        let (pairs, text) = unsafe { (&mut *room.pairs.get(), &mut *room.text.get()) };
        let defined = self.define(&Checked::new(), session, runtime, state, pairs, text);
        // SYNC: pairs with the Acquire exchange in `room`: the next one's words come after ours.
        room.is_taken.store(0, Ordering::Release);
        let Ok(id) = defined else {
            session.count(Counter::StacksUnread, 1);
            return 0;
        };
        self.count.fetch_add(1, Ordering::Relaxed);
        // Another thread may have defined the same stack meanwhile: then both are said, and this
        // call's is the one that was said first or, where the table has no room, its own.
        match self.stacks.get_or_define(hash, || id) {
            0 => id,
            known => known,
        }
    }

    fn room(&self) -> Option<&Room> {
        for _ in 0..TRIES {
            for room in self.rooms {
                if room.is_taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Some(room);
                }
            }
            core::hint::spin_loop();
        }
        None
    }

    fn define<M: Memory>(
        &self,
        memory: &M,
        session: &impl Define,
        runtime: &Runtime,
        state: u64,
        pairs: &mut [u64; FIELDS_MAX],
        text: &mut [u8; TEXT_MAX],
    ) -> Result<u32, Damaged> {
        let Runtime { layout, types, version, .. } = runtime;
        // Frames come innermost first and stand outermost first: filled from the end.
        let mut first = FIELDS_MAX;
        let mut put = |code: u32, at: u64| {
            first = first.saturating_sub(2);
            if let Some([to_code, to_at]) = pairs.get_mut(first..first + 2) {
                (*to_code, *to_at) = (code.into(), at);
            }
        };
        let mut known = Known::new(lives::current());
        let end = frames(memory, layout, types, state, |frame| {
            let identity = identity::of(memory, layout, frame.code, &mut known)?;
            let key = fold(frame.code, identity).max(1);
            let code = match self.codes.get(key) {
                Some(code) => code,
                None => {
                    let id = code::define(memory, layout, types, *version, frame.code, text, session)
                        .ok_or(Damaged)?;
                    match self.codes.get_or_define(key, || id) {
                        0 => id,
                        known => known,
                    }
                }
            };
            // What is missing counts for one frame.
            put(code, if code == 0 { 1 } else { position(memory, layout, &frame) });
            Ok(())
        })?;
        if end == End::Cut {
            put(0, 0);
        }
        Ok(session.define(kind::STACK, pairs.get(first..).unwrap_or_default(), b""))
    }
}

/// A hash of the frames of that thread state; 0 where it has none.
#[inline(always)]
pub fn hash<M: Memory>(memory: &M, layout: &Layout, types: &Types, state: u64) -> Result<u64, Damaged> {
    let (mut hash, mut known) = (0u64, Known::new(lives::current()));
    let end = frames(memory, layout, types, state, |frame| {
        let identity = identity::of(memory, layout, frame.code, &mut known)?;
        hash = step(hash, &frame, identity);
        Ok(())
    })?;
    Ok(if end == End::Cut { fold(hash, 1) } else { hash })
}

#[inline(always)]
fn step(hash: u64, frame: &Frame, identity: u64) -> u64 {
    fold(hash ^ frame.code, identity ^ frame.instruction.rotate_left(17)).max(1)
}
