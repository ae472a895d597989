//! Checks whether an interpreter has the layout of its version, by one whole stack of the calling thread.

use super::layout::Layout;
use super::memory::Memory;
use super::unicode;
use super::walk::{Damaged, Types, frames, is_of};

/// The bit at which a string's kind may begin in its state, if not where the available headers place it:
/// one flag precedes it, or a byte or two where threads share the flag without a lock.
const KIND_SHIFTS: [u8; 3] = [2, 8, 16];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Everything matches this layout.
    Good(Layout),
    /// The thread has no frames to check by.
    Open,
    Bad,
}

/// Checks every frame of the thread state, which should belong to that thread.
pub fn look<M: Memory>(memory: &M, layout: &Layout, types: &Types, state: u64, thread: u64) -> Verdict {
    if !memory.may_hold(state) || memory.word(state, layout.thread_id.into()) != Some(thread) {
        return Verdict::Bad;
    }
    if memory.word(state, layout.thread_interp.into()).is_none_or(|at| !memory.may_hold(at)) {
        return Verdict::Bad;
    }
    let shifts = core::iter::once(layout.text_kind_shift).chain(KIND_SHIFTS);
    for text_kind_shift in shifts {
        let layout = Layout { text_kind_shift, ..*layout };
        let mut seen = 0u32;
        let all = frames(memory, &layout, types, state, |frame| {
            seen += 1;
            is_code(memory, &layout, types, frame.code).then_some(()).ok_or(Damaged)
        });
        match (all, seen) {
            (Ok(_), 0) => return Verdict::Open,
            (Ok(_), _) => return Verdict::Good(layout),
            (Err(Damaged), _) => {}
        }
    }
    Verdict::Bad
}

fn is_code<M: Memory>(memory: &M, layout: &Layout, types: &Types, code: u64) -> bool {
    let object = |offset: u16, of: u64| {
        memory
            .word(code, offset.into())
            .filter(|object| memory.may_hold(*object) && is_of(memory, layout, *object, of))
    };
    let mut name = [0; 256];
    let mut is_text = |offset: u16| {
        object(offset, types.text).and_then(|text| unicode::read(memory, layout, text, &mut name)).is_some()
    };
    is_text(layout.code_name) && is_text(layout.code_file) && object(layout.code_table, types.bytes).is_some()
}
