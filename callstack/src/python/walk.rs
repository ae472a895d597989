//! A thread's frames, from the innermost out.

use gputrace_wire::definition::stack;

use super::layout::{ABSENT, Instruction, Layout};
use super::memory::Memory;
use crate::fold::fold;

/// The most frames kept of a stack: the format's maximum, less one for the mark of a cut.
pub const FRAMES_MAX: usize = stack::FRAMES_MAX - 1;
/// The most links followed. C calls into Python put one of the interpreter's own frames between.
const LINKS_MAX: usize = 2 * FRAMES_MAX;

/// The types that identify objects; 0 for an unknown one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Types {
    pub code: u64,
    pub text: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PyFrame {
    pub at: u64,
    pub code: u64,
    /// The content of the frame's instruction field; [`Instruction`] says what it is.
    pub instruction: u64,
}

/// An inconsistent chain of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damaged;

/// How a chain ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainEnd {
    Whole,
    /// The stack has more frames than are kept.
    Cut,
}

/// Calls `each` with every Python frame of that thread state, innermost first.
#[inline(always)]
pub fn frames<M: Memory>(
    memory: &M,
    layout: &Layout,
    types: &Types,
    thread: u64,
    each: impl FnMut(PyFrame) -> Result<(), Damaged>,
) -> Result<ChainEnd, Damaged> {
    frames_inside(memory, layout, types, thread, 0, each)
}

/// The same for the frames inside the one at `outer`, if the chain has that one; 0 is none.
#[inline(always)]
pub fn frames_inside<M: Memory>(
    memory: &M,
    layout: &Layout,
    types: &Types,
    thread: u64,
    outer: u64,
    each: impl FnMut(PyFrame) -> Result<(), Damaged>,
) -> Result<ChainEnd, Damaged> {
    frames_and_entries(memory, layout, types, thread, outer, each, |_| {})
}

/// The same. Also calls `entry` after each group of frames that one C call runs: with the interpreter's own
/// frame that follows the group, or 0 in versions without such frames.
#[inline(always)]
pub fn frames_and_entries<M: Memory>(
    memory: &M,
    layout: &Layout,
    types: &Types,
    thread: u64,
    outer: u64,
    mut each: impl FnMut(PyFrame) -> Result<(), Damaged>,
    mut entry: impl FnMut(u64),
) -> Result<ChainEnd, Damaged> {
    let mut at = innermost(memory, layout, thread).ok_or(Damaged)?;
    let mut kept = 0;
    for _ in 0..LINKS_MAX {
        if at == 0 || at == outer {
            return Ok(ChainEnd::Whole);
        }
        if !memory.may_hold(at) {
            return Err(Damaged);
        }
        let is_shim = layout.frame_owner != ABSENT
            && memory.byte(at, layout.frame_owner.into()).ok_or(Damaged)? >= layout.first_shim_owner();
        if !is_shim {
            if kept == FRAMES_MAX {
                return Ok(ChainEnd::Cut);
            }
            kept += 1;
            each(frame(memory, layout, types, at).ok_or(Damaged)?)?;
        }
        // Up to 3.10 each frame is run by a C call of its own. 3.11 marks the frames that are.
        let is_entry = match layout.minor {
            ..=10 => true,
            11 => memory.byte(at, u64::from(layout.frame_owner) - 1).ok_or(Damaged)? != 0,
            _ => is_shim,
        };
        if is_entry {
            entry(if is_shim { at } else { 0 });
        }
        at = memory.word(at, layout.frame_previous.into()).ok_or(Damaged)?;
    }
    if at == 0 { Ok(ChainEnd::Whole) } else { Ok(ChainEnd::Cut) }
}

/// Calls `each` with the address of every frame inside the one at `outer`, innermost first, and with a number
/// for its instruction: its address, or the fold of the code object's address and its offset. The
/// interpreter's own frames are included. These are at least the frames of [`frames_inside`]. Follows no
/// pointer but the chain's own. `None` if there is no frame.
#[inline(always)]
pub fn links_inside<M: Memory>(
    memory: &M,
    layout: &Layout,
    thread: u64,
    outer: u64,
    each: impl FnMut(u64, u64),
) -> Result<Option<ChainEnd>, Damaged> {
    // One loop for each width of the instruction field.
    match layout.instruction() {
        Instruction::Address => links::<M, true>(memory, layout, thread, outer, each),
        Instruction::Bytes | Instruction::Units => links::<M, false>(memory, layout, thread, outer, each),
    }
}

#[inline(always)]
fn links<M: Memory, const IS_ADDRESS: bool>(
    memory: &M,
    layout: &Layout,
    thread: u64,
    outer: u64,
    mut each: impl FnMut(u64, u64),
) -> Result<Option<ChainEnd>, Damaged> {
    let (at_previous, at_code) = (layout.frame_previous.into(), layout.frame_code.into());
    let at_instruction = layout.frame_instruction.into();
    let mut at = innermost(memory, layout, thread).ok_or(Damaged)?;
    if at == 0 || at == outer {
        return Ok(None);
    }
    for _ in 0..LINKS_MAX {
        if !memory.may_hold(at) {
            return Err(Damaged);
        }
        let number = match IS_ADDRESS {
            // It is inside the code object, or in a copy of its bytecode.
            true => memory.word(at, at_instruction).ok_or(Damaged)?,
            false => {
                let code = memory.word(at, at_code).ok_or(Damaged)?;
                fold(code, memory.half(at, at_instruction).ok_or(Damaged)?.into())
            }
        };
        each(at, number);
        at = memory.word(at, at_previous).ok_or(Damaged)?;
        if at == 0 || at == outer {
            return Ok(Some(ChainEnd::Whole));
        }
    }
    Ok(Some(ChainEnd::Cut))
}

/// The address of the thread's innermost frame; 0 if it has none.
#[inline(always)]
pub fn innermost<M: Memory>(memory: &M, layout: &Layout, thread: u64) -> Option<u64> {
    if !memory.may_hold(thread) {
        return None;
    }
    let first = memory.word(thread, layout.thread_frame.into())?;
    if layout.cframe_frame == ABSENT {
        return Some(first);
    }
    if !memory.may_hold(first) {
        return None;
    }
    memory.word(first, layout.cframe_frame.into())
}

#[inline(always)]
fn frame<M: Memory>(memory: &M, layout: &Layout, types: &Types, at: u64) -> Option<PyFrame> {
    let code = memory.word(at, layout.frame_code.into())? & !layout.code_tag();
    if !memory.may_hold(code) || !is_of(memory, layout, code, types.code) {
        return None;
    }
    let instruction = match layout.instruction() {
        Instruction::Address => memory.word(at, layout.frame_instruction.into())?,
        Instruction::Bytes | Instruction::Units => memory.half(at, layout.frame_instruction.into())?.into(),
    };
    Some(PyFrame { at, code, instruction })
}

/// Whether the object has that type.
#[inline(always)]
pub fn is_of<M: Memory>(memory: &M, layout: &Layout, object: u64, kind: u64) -> bool {
    kind == 0 || memory.word(object, layout.object_type.into()) == Some(kind)
}

/// The frame's position in its code: a byte offset, or [`stack::NOT_BEGUN`].
pub fn position<M: Memory>(memory: &M, layout: &Layout, frame: &PyFrame) -> u64 {
    let offset = match layout.instruction() {
        Instruction::Bytes => Some(frame.instruction),
        // -1 stays beyond the end of any code.
        Instruction::Units => Some(frame.instruction * 2),
        Instruction::Address => {
            instructions(memory, layout, frame).and_then(|start| frame.instruction.checked_sub(start))
        }
    };
    // No code is that long. The int's -1 is beyond it too.
    offset.filter(|offset| *offset < 1 << 31).unwrap_or(stack::NOT_BEGUN)
}

/// The address of the first instruction of the frame's code.
fn instructions<M: Memory>(memory: &M, layout: &Layout, frame: &PyFrame) -> Option<u64> {
    let own = frame.code + u64::from(layout.code_start);
    if layout.frame_copy == ABSENT || layout.code_copies == ABSENT {
        return Some(own);
    }
    let copy = memory.half(frame.at, layout.frame_copy.into())?;
    let copies = memory.word(frame.code, layout.code_copies.into())?;
    if !memory.may_hold(copies) || u64::from(copy) >= memory.word(copies, 0)? {
        return None;
    }
    memory.word(copies, 8 + 8 * u64::from(copy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::layout::Layout;
    use crate::python::memory::ProcessImage;

    const START: u64 = 0x20_0000;
    const CODE_TYPE: u64 = 0x99_0000;

    /// A process of 64 KiB whose memory a test fills.
    struct Process {
        bytes: Vec<u8>,
        layout: Layout,
    }

    impl Process {
        fn new(minor: u8) -> Process {
            Process { bytes: vec![0; 1 << 16], layout: Layout::of_minor(minor).unwrap() }
        }

        fn put(&mut self, at: u64, offset: u16, value: u64) {
            let from = (at - START) as usize + usize::from(offset);
            self.bytes[from..from + 8].copy_from_slice(&value.to_le_bytes());
        }

        fn thread(&mut self, frame: u64) -> u64 {
            let (thread, between) = (START + 0x100, START + 0x300);
            if self.layout.cframe_frame == ABSENT {
                self.put(thread, self.layout.thread_frame, frame);
            } else {
                self.put(thread, self.layout.thread_frame, between);
                self.put(between, self.layout.cframe_frame, frame);
            }
            thread
        }

        fn frame(&mut self, at: u64, code: u64, instruction: u64, previous: u64) -> u64 {
            self.put(at, self.layout.frame_code, code);
            self.put(at, self.layout.frame_instruction, instruction);
            self.put(at, self.layout.frame_previous, previous);
            self.put(code, self.layout.object_type, CODE_TYPE);
            at
        }

        fn walk(&self, thread: u64) -> (Result<ChainEnd, Damaged>, Vec<PyFrame>) {
            let memory = ProcessImage { start: START, bytes: &self.bytes };
            let types = Types { code: CODE_TYPE, ..Types::default() };
            let mut found = Vec::new();
            let end = frames(&memory, &self.layout, &types, thread, |frame| {
                found.push(frame);
                Ok(())
            });
            (end, found)
        }

        fn position(&self, frame: &PyFrame) -> u64 {
            position(&ProcessImage { start: START, bytes: &self.bytes }, &self.layout, frame)
        }
    }

    #[test]
    fn frames_of_every_version_are_walked_from_the_innermost_out() {
        for minor in 8..=12 {
            let mut process = Process::new(minor);
            let (outer_code, inner_code) = (START + 0x1000, START + 0x2000);
            let inside = |code: u64, offset: u64| match process.layout.instruction() {
                Instruction::Bytes => offset,
                Instruction::Units => offset / 2,
                Instruction::Address => code + u64::from(process.layout.code_start) + offset,
            };
            let (at_outer, at_inner) = (inside(outer_code, 40), inside(inner_code, 6));
            let outer = process.frame(START + 0x3000, outer_code, at_outer, 0);
            let inner = process.frame(START + 0x4000, inner_code, at_inner, outer);
            let thread = process.thread(inner);
            let (end, found) = process.walk(thread);
            assert_eq!(end, Ok(ChainEnd::Whole));
            assert_eq!(
                found.iter().map(|f| f.code).collect::<Vec<_>>(),
                [inner_code, outer_code],
                "3.{minor}"
            );
            assert_eq!(found.iter().map(|f| process.position(f)).collect::<Vec<_>>(), [6, 40], "3.{minor}");
        }
    }

    #[test]
    fn frame_that_has_not_begun_is_on_its_first_line() {
        for minor in 8..=12 {
            let mut process = Process::new(minor);
            let code = START + 0x1000;
            let before = match process.layout.instruction() {
                Instruction::Address => code + u64::from(process.layout.code_start) - 2,
                _ => u64::from(u32::MAX),
            };
            let frame = process.frame(START + 0x3000, code, before, 0);
            let thread = process.thread(frame);
            let (_, found) = process.walk(thread);
            assert_eq!(process.position(&found[0]), stack::NOT_BEGUN, "3.{minor}");
        }
    }

    #[test]
    fn frames_of_the_interpreter_are_passed_over() {
        let mut process = Process::new(12);
        let code = START + 0x1000;
        let outer = process.frame(START + 0x3000, code, 0, 0);
        let shim = process.frame(START + 0x3800, START + 0x5000, 0, outer);
        process.bytes[0x3800 + usize::from(process.layout.frame_owner)] = 3;
        let inner = process.frame(START + 0x4000, code, 0, shim);
        let thread = process.thread(inner);
        let (end, found) = process.walk(thread);
        assert_eq!((end, found.len()), (Ok(ChainEnd::Whole), 2));
    }

    #[test]
    fn frames_inside_of_one_end_before_it() {
        let mut process = Process::new(12);
        let [first, second, third] = [START + 0x3000, START + 0x3800, START + 0x4000];
        process.frame(first, START + 0x1000, 0, 0);
        process.frame(second, START + 0x1000, 0, first);
        process.frame(third, START + 0x1000, 0, second);
        let thread = process.thread(third);
        let memory = ProcessImage { start: START, bytes: &process.bytes };
        let types = Types { code: CODE_TYPE, ..Types::default() };
        assert_eq!(innermost(&memory, &process.layout, thread), Some(third));
        for (outer, expected) in [
            (0, vec![third, second, first]),
            (first, vec![third, second]),
            (third, vec![]),
            (START + 0x9000, vec![third, second, first]),
        ] {
            let mut found = Vec::new();
            let end = frames_inside(&memory, &process.layout, &types, thread, outer, |frame| {
                found.push(frame.at);
                Ok(())
            });
            assert_eq!((end, found), (Ok(ChainEnd::Whole), expected), "{outer:#x}");
        }
    }

    #[test]
    fn ring_of_frames_is_cut() {
        let mut process = Process::new(12);
        let frame = START + 0x3000;
        process.frame(frame, START + 0x1000, 0, frame);
        let thread = process.thread(frame);
        let (end, found) = process.walk(thread);
        assert_eq!((end, found.len()), (Ok(ChainEnd::Cut), FRAMES_MAX));
    }

    #[test]
    fn ring_of_the_interpreters_own_frames_ends() {
        let mut process = Process::new(12);
        let frame = START + 0x3000;
        process.frame(frame, START + 0x1000, 0, frame);
        process.bytes[0x3000 + usize::from(process.layout.frame_owner)] = 3;
        let thread = process.thread(frame);
        assert_eq!(process.walk(thread), (Ok(ChainEnd::Cut), vec![]));
    }

    #[test]
    fn pointers_to_nowhere_are_damage() {
        for bad in [3, 0x2000, START + 0x3001, START + 0x2_0000, u64::MAX - 7, 1 << 47] {
            let mut process = Process::new(12);
            let thread = process.thread(bad);
            assert_eq!(process.walk(thread).0, Err(Damaged), "{bad:#x}");
            let mut process = Process::new(12);
            process.put(START + 0x3000, process.layout.frame_code, bad);
            let thread = process.thread(START + 0x3000);
            assert_eq!(process.walk(thread).0, Err(Damaged), "{bad:#x}");
        }
    }

    #[test]
    fn object_that_is_no_code_is_damage() {
        let mut process = Process::new(12);
        let frame = process.frame(START + 0x3000, START + 0x1000, 0, 0);
        process.put(START + 0x1000, process.layout.object_type, CODE_TYPE + 8);
        let thread = process.thread(frame);
        assert_eq!(process.walk(thread).0, Err(Damaged));
    }

    /// The numbers of a chain's links, and how the chain ended.
    type Links = (Option<ChainEnd>, Vec<u64>);

    /// The chain as the fingerprint sees it.
    fn links(process: &Process, thread: u64, outer: u64) -> Result<Links, Damaged> {
        let mut found = Vec::new();
        let memory = ProcessImage { start: START, bytes: &process.bytes };
        let end = links_inside(&memory, &process.layout, thread, outer, |_, number| found.push(number))?;
        Ok((end, found))
    }

    #[test]
    fn links_are_the_frames_and_the_interpreters_own() {
        for minor in 8..=12 {
            let mut process = Process::new(minor);
            let (code, other) = (START + 0x1000, START + 0x2000);
            let outer = process.frame(START + 0x3000, code, 40, 0);
            let inner = process.frame(START + 0x4000, other, 6, outer);
            let thread = process.thread(inner);
            let number = |code, instruction| match process.layout.instruction() {
                Instruction::Address => instruction,
                _ => fold(code, instruction),
            };
            let all = vec![number(other, 6), number(code, 40)];
            assert_eq!(links(&process, thread, 0), Ok((Some(ChainEnd::Whole), all.clone())), "3.{minor}");
            assert_eq!(links(&process, thread, outer), Ok((Some(ChainEnd::Whole), all[..1].to_vec())));
            assert_eq!(links(&process, thread, inner), Ok((None, vec![])));
            // No code object is read.
            process.put(other, process.layout.object_type, 0);
            assert_eq!(links(&process, thread, 0), Ok((Some(ChainEnd::Whole), all.clone())));
            assert_eq!(process.walk(thread).0, Err(Damaged));
            if minor == 12 {
                process.bytes[0x3000 + usize::from(process.layout.frame_owner)] = 3;
                assert_eq!(links(&process, thread, 0), Ok((Some(ChainEnd::Whole), all)));
            }
            process.put(outer, process.layout.frame_previous, 3);
            assert_eq!(links(&process, thread, 0), Err(Damaged));
            process.put(outer, process.layout.frame_previous, inner);
            let (end, found) = links(&process, thread, 0).unwrap();
            assert_eq!((end, found.len()), (Some(ChainEnd::Cut), LINKS_MAX));
            let thread = process.thread(0);
            assert_eq!(links(&process, thread, 0), Ok((None, vec![])));
        }
    }
}
