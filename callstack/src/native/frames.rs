//! The calling thread's native frames as part of a stack: mixed into one number, and written out.

use super::images::{Images, MappedImage};
use super::last_walk::{LastNativeWalk, NativeStart, term};
use super::rule::{EVALUATION, INTERPRETER, Kind, OWN, Rule};
use super::rules::Rules;
use super::stack::Stack;
use super::surroundings;
use super::walk::{End, FRAMES_MAX, Frame, Registers, walk};
use crate::fold::fold;
use crate::python::code::Define;
use crate::read_word::ReadWord;
use crate::sum::Sum;

/// A session's data about native code.
pub struct Native {
    rules: Rules,
    images: Images,
}

/// A native frame of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NativeFrame {
    /// The image's definition; 0 if the code belongs to no image, or to one that could not be defined.
    pub image: u32,
    pub flags: u64,
    /// Address in the image's file: of the call, or of a byte in it. Without a definition: how many frames
    /// are missing here, one, or none if the mark at the end stands for the frame.
    pub at: u64,
    /// The end of the frame, above it.
    pub end: u64,
}

impl NativeFrame {
    pub fn is_shown(&self) -> bool {
        self.flags & (OWN | INTERPRETER) == 0
    }

    pub fn is_of_interpreter(&self) -> bool {
        self.flags & INTERPRETER != 0
    }

    pub fn is_evaluation(&self) -> bool {
        self.flags & EVALUATION != 0
    }
}

/// A buffer for the frames of a walk.
pub type FrameBuffer = [NativeFrame; FRAMES_MAX];

/// The current registers.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn here() -> Registers {
    let (pc, sp, bp): (u64, u64, u64);
    // SAFETY: reads three registers. The `pc` read is after the instruction that reads it, in the function
    // that this is inlined into.
    unsafe {
        core::arch::asm!(
            "lea {pc}, [rip]",
            "mov {sp}, rsp",
            "mov {bp}, rbp",
            pc = out(reg) pc,
            sp = out(reg) sp,
            bp = out(reg) bp,
            options(nostack, nomem, preserves_flags),
        );
    }
    // As if the instruction before were a call.
    Registers { pc: pc + 1, sp, bp }
}

/// Other processors' tables are not read: a walk ends where it begins.
#[cfg(not(target_arch = "x86_64"))]
fn here() -> Registers {
    Registers { pc: 0, sp: 0, bp: 0 }
}

/// Frames that a thread may have: those of the walk that began there and read these words.
#[derive(Clone, Copy)]
pub struct Expected<'e, Of> {
    pub of: Of,
    pub start: &'e NativeStart,
    pub words: &'e [ReadWord],
}

impl Native {
    pub fn new() -> Option<Native> {
        Some(Native { rules: Rules::new()?, images: Images::new()? })
    }

    #[inline(always)]
    fn walk(&self, session: &impl Define, from: Registers, each: impl FnMut(Frame)) -> End {
        let epoch = Rules::epoch_of(surroundings::epoch());
        let rule = |pc: u64| self.rule(session, pc, epoch);
        walk(&mut Stack::of_this_thread(from.sp), from, rule, each)
    }

    /// A hash of the calling thread's frames, never 0: the same one with and without the thread's last walk,
    /// which makes it faster. If they are the expected ones, or those that `second` says, what these are of.
    #[inline(never)]
    pub fn hash<'e, Of>(
        &self,
        session: &impl Define,
        expected: Option<Expected<'e, Of>>,
        second: impl FnOnce() -> Option<Expected<'e, Of>>,
        last: Option<&mut LastNativeWalk>,
    ) -> Result<u64, Of> {
        let from = here();
        let libraries = surroundings::epoch();
        let is_it = |expected: &Expected<'e, Of>| expected.start.leads_by(expected.words, from, libraries);
        if let Some(expected) = expected.filter(is_it).or_else(|| second().filter(is_it)) {
            return Err(expected.of);
        }
        let epoch = Rules::epoch_of(libraries);
        let rule = |pc: u64| self.rule(session, pc, epoch);
        let kept = last.and_then(|last| last.sum(from, libraries, rule));
        Ok(match kept {
            Some((sum, end)) => fold(sum, end as u64).max(1),
            None => self.hash_of_all(session, from),
        })
    }

    #[cold]
    #[inline(never)]
    fn hash_of_all(&self, session: &impl Define, from: Registers) -> u64 {
        let mut sum = Sum::default();
        let end = self.walk(session, from, |frame| {
            // The tracer's own frames differ from call to call and are not shown, so they are not hashed.
            if !frame.rule.has(OWN) {
                sum.add_outer(term(frame.pc, frame.rule));
            }
        });
        fold(sum.sum, end as u64).max(1)
    }

    #[inline(always)]
    fn rule(&self, session: &impl Define, pc: u64, epoch: u32) -> Rule {
        match self.rules.get(pc, epoch) {
            Some(rule) => rule,
            None => self.images.work_out(&self.rules, session, pc),
        }
    }

    /// The end of the tracer's own frames; 0 if unknown.
    #[inline(never)]
    pub fn end_of_own(&self, session: &impl Define) -> u64 {
        let (mut end, mut is_own) = (0, true);
        self.walk(session, here(), |frame| {
            is_own &= frame.rule.has(OWN);
            if is_own {
                end = frame.end;
            }
        });
        end
    }

    /// Writes the calling thread's frames to the buffer, innermost first. Returns their number and how the
    /// walk ended.
    #[inline(never)]
    pub fn write_frames(&self, session: &impl Define, buffer: &mut FrameBuffer) -> (usize, End) {
        let mut count = 0;
        let end = self.walk(session, here(), |frame| {
            if let Some(to) = buffer.get_mut(count) {
                let image = self.images.mapped(frame.rule.image());
                // A handler returns to the beginning of the kernel's own function, and no call precedes
                // that address.
                let back = if frame.rule.kind() == Kind::Signal { 0 } else { 1 };
                let (image, at) = match image {
                    None => (0, 0),
                    Some(MappedImage { definition: 0, .. }) => (0, 1),
                    Some(MappedImage { definition, bias }) => {
                        (definition, frame.pc.wrapping_sub(back).wrapping_sub(bias))
                    }
                };
                let flags = frame.rule.word() & (OWN | INTERPRETER | EVALUATION);
                *to = NativeFrame { image, flags, at, end: frame.end };
                count += 1;
            }
        });
        (count, end)
    }
}
