//! A thread's chain of Python frames as it was when its stack was found.
//!
//! It is the same chain if each frame is at the same address and has the same instruction pointer. From
//! Python 3.11 on that points into the frame's code object, so that the same pointers are of the same code
//! objects, as long as none has ended. All these code objects must have been entered before in
//! [`super::lives`], which counts their ends. For a stack that is in the stack cache this is so.

use core::hint::cold_path;

use super::layout::{ABSENT, Instruction, Layout};
use super::lives;
use super::memory::Memory;
use super::walk::innermost;
use crate::read_word::ReadWord;

/// Whether chains of that layout can be recognised: a frame's instruction is an address in the code object
/// itself, of which there are no copies as in free-threaded builds, and ends of code objects are counted.
#[inline(always)]
pub fn can_be_known(layout: &Layout) -> bool {
    layout.frame_copy == ABSENT && layout.instruction() == Instruction::Address && lives::current().is_some()
}

/// Writes the thread's frames, each one's address with its instruction, and returns their number; `None` if
/// they do not fit, or one cannot be read.
pub fn write<M: Memory>(memory: &M, layout: &Layout, thread: u64, into: &mut [ReadWord]) -> Option<usize> {
    let mut at = innermost(memory, layout, thread)?;
    let mut count = 0;
    while at != 0 {
        if !memory.may_hold(at) {
            return None;
        }
        let word = memory.word(at, layout.frame_instruction.into())?;
        *into.get_mut(count)? = ReadWord { at, word };
        count += 1;
        at = memory.word(at, layout.frame_previous.into())?;
    }
    Some(count)
}

/// Whether the thread's frames are these; `write` wrote them for that thread. An address is read only after
/// the chain has led to it, since the frame that was there may be gone.
#[inline(always)]
pub fn is<M: Memory>(memory: &M, layout: &Layout, thread: u64, frames: &[ReadWord]) -> bool {
    let (at_instruction, at_previous) = (layout.frame_instruction.into(), layout.frame_previous.into());
    let word = |at: u64, offset: u64| memory.word(at, offset).unwrap_or(NOWHERE);
    let mut at = word(thread, layout.thread_frame.into());
    if layout.cframe_frame != ABSENT {
        if !memory.may_hold(at) {
            cold_path();
            return false;
        }
        at = word(at, layout.cframe_frame.into());
    }
    for frame in frames {
        let kept_at = apart(&frame.at);
        if at != frame.at || word(kept_at, at_instruction) != frame.word {
            return false;
        }
        at = word(kept_at, at_previous);
    }
    at == 0
}

/// What a word that cannot be read counts as: no frame's address, and no chain's end.
const NOWHERE: u64 = u64::MAX;

/// The number, of which the compiler does not know that it is the one that is compared. After the comparison
/// it could otherwise use the address that the chain has led to instead of the kept one. Then each frame's
/// read would wait for that of the frame before.
#[inline(always)]
fn apart(number: &u64) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let read;
        // SAFETY: reads the number.
        unsafe {
            core::arch::asm!(
                "mov {}, [{}]", out(reg) read, in(reg) number, options(pure, readonly, nostack, preserves_flags)
            );
        }
        read
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    core::hint::black_box(*number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::memory::ProcessImage;

    const START: u64 = 0x20_0000;

    struct Process {
        bytes: Vec<u8>,
        layout: Layout,
    }

    impl Process {
        fn put(&mut self, at: u64, offset: u16, word: u64) {
            let from = (at - START) as usize + usize::from(offset);
            self.bytes[from..from + 8].copy_from_slice(&word.to_le_bytes());
        }

        /// A thread with three frames.
        fn new(minor: u8) -> (Process, u64, [u64; 3]) {
            let mut process = Process { bytes: vec![0; 1 << 16], layout: Layout::of_minor(minor).unwrap() };
            let (layout, thread, between) = (process.layout, START + 0x100, START + 0x300);
            let frames = [START + 0x1000, START + 0x2000, START + 0x3000];
            for (index, at) in frames.into_iter().enumerate() {
                process.put(at, layout.frame_instruction, 77 + index as u64);
                process.put(at, layout.frame_previous, frames.get(index + 1).copied().unwrap_or(0));
            }
            process.put(thread, layout.thread_frame, between);
            process.put(between, layout.cframe_frame, frames[0]);
            (process, thread, frames)
        }

        fn written(&self, thread: u64, room: usize) -> Option<Vec<ReadWord>> {
            let memory = ProcessImage { start: START, bytes: &self.bytes };
            let mut words = vec![ReadWord { at: 1, word: 1 }; room];
            let count = write(&memory, &self.layout, thread, &mut words)?;
            words.truncate(count);
            Some(words)
        }

        fn is(&self, thread: u64, frames: &[ReadWord]) -> bool {
            is(&ProcessImage { start: START, bytes: &self.bytes }, &self.layout, thread, frames)
        }
    }

    #[test]
    fn chain_is_known_until_a_link_differs() {
        for minor in [11, 12] {
            let (process, thread, frames) = Process::new(minor);
            let known = process.written(thread, 3).unwrap();
            assert_eq!(known.iter().map(|frame| frame.at).collect::<Vec<_>>(), frames);
            assert!(process.is(thread, &known));
            assert_eq!(process.written(thread, 2), None);
            assert!(!process.is(thread, &known[..2]) && !process.is(thread, &known[1..]));
            assert!(!process.is(thread, &[]));
            let changes = |change: &dyn Fn(&mut Process)| {
                let (mut process, thread, _) = Process::new(minor);
                change(&mut process);
                !process.is(thread, &known)
            };
            let layout = process.layout;
            for at in frames {
                assert!(changes(&|process| process.put(at, layout.frame_instruction, 5)));
                // A frame more, one less, or another one, at an address that may not be mapped.
                for previous in [START + 0x4000, 0, frames[0], START + 0x10_0000, 3] {
                    let is_same = at == frames[2] && previous == 0;
                    assert_eq!(
                        changes(&|process| process.put(at, layout.frame_previous, previous)),
                        !is_same
                    );
                }
            }
            assert!(changes(&|process| process.put(START + 0x300, layout.cframe_frame, frames[1])));
            assert!(changes(&|process| process.put(START + 0x300, layout.cframe_frame, 0)));
        }
    }

    #[test]
    fn chain_without_a_structure_in_between_and_one_without_frames_are_known() {
        let (mut process, thread, frames) = Process::new(12);
        process.layout.cframe_frame = ABSENT;
        process.put(thread, process.layout.thread_frame, frames[0]);
        let known = process.written(thread, 3).unwrap();
        assert!(process.is(thread, &known) && !process.is(thread, &known[1..]));
        process.put(thread, process.layout.thread_frame, 0);
        assert!(process.is(thread, &[]) && !process.is(thread, &known));
    }

    #[test]
    fn chain_that_leads_nowhere_is_not_written() {
        let (mut process, thread, frames) = Process::new(12);
        process.put(frames[2], process.layout.frame_previous, START + 0x10_0000);
        assert_eq!(process.written(thread, 9), None);
        // A ring.
        process.put(frames[2], process.layout.frame_previous, frames[0]);
        assert_eq!(process.written(thread, 64), None);
    }
}
