//! A thread's Python frames as part of a stack: mixed into one number, and told with their code objects.
//!
//! The steady path is a walk that mixes each frame's code object, its identity and its instruction into a
//! hash of 64 bits. A code object is defined at the first stack that it is in: 32 768 of them at most.

use core::cell::RefCell;

use gputrace_wire::definition::TEXT_MAX;

use super::code::{self, Define};
use super::identity::{self, Known, fold};
use super::layout::Layout;
use super::lives;
use super::memory::Memory;
use super::runtime::Runtime;
use super::walk::{Damaged, End, Frame, Types, frames_and_entries, frames_inside, position};
use crate::handles::Handles;

const CODE_SLOTS: usize = 1 << 16;

/// A frame as a stack has it, or what lies between two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// The code's definition, and the position in it.
    Frame(u32, u64),
    /// As [`frames_and_entries`] says it.
    Entry(u64),
}

/// The code objects of a session that are defined.
pub struct Codes {
    ids: Handles,
}

impl Codes {
    pub fn new() -> Option<Codes> {
        Some(Codes { ids: Handles::new(CODE_SLOTS)? })
    }

    /// Calls `put` with every frame of that thread state, inside of the one at `outer`, innermost first. The code objects
    /// that nobody has said yet are defined.
    pub fn tell<M: Memory>(
        &self,
        memory: &M,
        session: &impl Define,
        runtime: &Runtime,
        (state, outer): (u64, u64),
        text: &mut [u8; TEXT_MAX],
        put: impl FnMut(Told),
    ) -> Result<End, Damaged> {
        let Runtime { layout, types, version, .. } = runtime;
        let mut known = Known::new(lives::current());
        let put = RefCell::new(put);
        // Nothing that is called here comes back here.
        let tell = |told: Told| put.try_borrow_mut().map_or((), |mut put| put(told));
        let each = |frame: Frame| {
            let identity = identity::of(memory, layout, frame.code, &mut known)?;
            let key = fold(frame.code, identity).max(1);
            let code = match self.ids.get(key) {
                Some(code) => code,
                None => {
                    let id = code::define(memory, layout, types, *version, frame.code, text, session)
                        .ok_or(Damaged)?;
                    match self.ids.get_or_define(key, || id) {
                        0 => id,
                        known => known,
                    }
                }
            };
            // What is missing counts for one frame.
            tell(Told::Frame(code, if code == 0 { 1 } else { position(memory, layout, &frame) }));
            Ok(())
        };
        frames_and_entries(memory, layout, types, state, outer, each, |at| tell(Told::Entry(at)))
    }
}

/// A hash of the frames of that thread state; 0 where it has none.
#[inline(always)]
pub fn hash<M: Memory>(memory: &M, layout: &Layout, types: &Types, state: u64) -> Result<u64, Damaged> {
    hash_inside(memory, layout, types, state, 0)
}

/// The same of those frames that are inside of the one at `outer`.
#[inline(always)]
pub fn hash_inside<M: Memory>(
    memory: &M,
    layout: &Layout,
    types: &Types,
    state: u64,
    outer: u64,
) -> Result<u64, Damaged> {
    let (mut hash, mut known) = (0u64, Known::new(lives::current()));
    let end = frames_inside(memory, layout, types, state, outer, |frame| {
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
