//! The calling thread's native frames as part of a stack: mixed into one number, and told.

use super::images::{Images, Place};
use super::rule::{EVALUATION, INTERPRETER, Kind, OWN, Rule};
use super::rules::Rules;
use super::stack::Stack;
use super::surroundings;
use super::walk::{End, FRAMES_MAX, Frame, Registers, walk};
use crate::python::code::Define;
use crate::python::identity::fold;

/// What a session knows of native code.
pub struct Native {
    rules: Rules,
    images: Images,
}

/// A native frame, as a stack has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NativeFrame {
    /// The image's definition; 0 where the code is of none, or of one that could not be defined.
    pub image: u32,
    pub flags: u64,
    /// In the image's file: of the call, or a byte of it. Without a definition, how many frames are missing here: one
    /// or, where the mark at the end stands for it, none.
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

/// Room for the frames of a walk.
pub type Room = [NativeFrame; FRAMES_MAX];

/// The registers as they are here.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn here() -> Registers {
    let (pc, sp, bp): (u64, u64, u64);
    // SAFETY: reads three registers. The place that is read is behind the instruction that reads it, in the function that
    // this is inlined into.
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

impl Native {
    pub fn new() -> Option<Native> {
        Some(Native { rules: Rules::new()?, images: Images::new()? })
    }

    #[inline(always)]
    fn walk(&self, session: &impl Define, from: Registers, each: impl FnMut(Frame)) -> End {
        let epoch = Rules::epoch_of(surroundings::epoch());
        let rule = |pc: u64| -> Rule {
            match self.rules.get(pc, epoch) {
                Some(rule) => rule,
                None => self.images.work_out(&self.rules, session, pc),
            }
        };
        walk(&mut Stack::of_this_thread(from.sp), from, rule, each)
    }

    /// A hash of the calling thread's frames, never 0.
    #[inline(never)]
    pub fn hash(&self, session: &impl Define) -> u64 {
        let mut hash = 1;
        let end = self.walk(session, here(), |frame| {
            // The tracer's own frames are another number from call to call, and not told.
            if !frame.rule.has(OWN) {
                hash = fold(hash ^ frame.pc, frame.rule.word());
            }
        });
        fold(hash, end as u64).max(1)
    }

    /// Where the tracer's own innermost frames end; 0 where that is not known.
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

    /// The calling thread's frames, innermost first: how many of the room they took, and how they end.
    #[inline(never)]
    pub fn tell(&self, session: &impl Define, room: &mut Room) -> (usize, End) {
        let mut count = 0;
        let end = self.walk(session, here(), |frame| {
            if let Some(to) = room.get_mut(count) {
                let place = self.images.place(frame.rule.image());
                // A handler returns to the beginning of the kernel's own function: no call is before that.
                let back = if frame.rule.kind() == Kind::Signal { 0 } else { 1 };
                let (image, at) = match place {
                    None => (0, 0),
                    Some(Place { definition: 0, .. }) => (0, 1),
                    Some(Place { definition, bias }) => {
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
