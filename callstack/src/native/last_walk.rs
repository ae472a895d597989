//! The native frames that a thread's last walk found, by which the next walk goes faster.
//!
//! The outer frames of a launch are mostly those of the last one. A walk by rules takes two dependent reads
//! for each frame: the rule of its code address, from a table that is larger than a core's first cache, and
//! the return address. So the last walk's frames are kept, the outermost first. Where the walk comes to a
//! kept frame (the same code address, stack pointer and frame pointer), its caller's are read where they were
//! found the last time, and compared with the next kept frame. If they are equal, the walk goes on with the
//! *kept* ones: the processor predicts that they are, and reads many frames at a time. The sum that the hash
//! is made of is kept for each of them.
//!
//! Only walks on the thread's own stack are kept, and only those that go by the stack or the frame pointer to
//! the outermost frame. What is read of the stack is above the frame that the walk has come to, and so is
//! mapped.

use super::bounds::Bounds;
use super::rule::{Kind, OWN, Rule, SavedBp};
use super::stack::{self, load};
use super::walk::Registers;
use crate::fold::fold;
use crate::sum::Sum;

/// Deeper stacks are walked without.
const FRAMES_MAX: usize = 160;
/// How many stacks are walked without after one that cannot be kept.
const PASSED_OVER: u32 = 15;

#[derive(Clone, Copy)]
struct KeptFrame {
    pc: u64,
    sp: u64,
    bp: u64,
    /// The address of the word that is the caller's frame pointer: on the stack, or, if the function leaves
    /// the frame pointer alone, in the next kept frame.
    bp_at: u64,
}

/// A frame of the walk under way; `bp_at` is 0 if the function leaves the frame pointer alone.
#[derive(Clone, Copy)]
struct FoundFrame {
    frame: KeptFrame,
    term: u64,
}

/// A thread's last walk. Zeroed memory is valid: no walk.
#[repr(C, align(64))]
pub struct LastNativeWalk {
    /// The thread's own stack.
    own: Bounds,
    /// Whose walk it is ([`FoundFrames::turn`]), and the number of closed libraries.
    valid_for: (u32, u32),
    passed_over: u32,
    /// The number of frames and sums, the outermost first.
    count: usize,
    frames: [KeptFrame; FRAMES_MAX],
    terms: [u64; FRAMES_MAX],
    sums: [u64; FRAMES_MAX],
}

/// A thread's walk under way.
pub struct FoundFrames {
    /// How many threads have had it, and the kept walks with it.
    turn: u32,
    /// The frames that are not kept ones, the innermost first.
    frames: [FoundFrame; FRAMES_MAX],
}

impl FoundFrames {
    /// Called when another thread takes it: its own stack is another one.
    pub fn begin_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }
}

impl LastNativeWalk {
    /// The sum of the frames from there on, as a walk makes it that ends at the outermost frame. `None` if
    /// the walk cannot be kept.
    #[inline(always)]
    pub fn sum(
        &mut self,
        buffer: &mut FoundFrames,
        from: Registers,
        epoch: u32,
        rule: impl FnMut(u64) -> Rule,
    ) -> Option<u64> {
        if self.passed_over != 0 {
            self.passed_over -= 1;
            return None;
        }
        if self.valid_for != (buffer.turn, epoch) {
            (self.valid_for, self.own, self.count) = ((buffer.turn, epoch), Bounds { low: 0, end: 0 }, 0);
        }
        if !self.own.hold(from.sp) {
            self.own = stack::known_own();
            if !self.own.hold(from.sp) {
                return None;
            }
        }
        let sum = self.walk(buffer, from, self.own.end, rule);
        if sum.is_none() {
            (self.count, self.passed_over) = (0, PASSED_OVER);
        }
        sum
    }

    /// The code addresses of the kept frames, the outermost first.
    #[cfg(test)]
    pub fn addresses(&self) -> Vec<u64> {
        self.frames[..self.count].iter().map(|frame| frame.pc).collect()
    }

    #[inline(always)]
    fn walk(
        &mut self,
        buffer: &mut FoundFrames,
        from: Registers,
        end: u64,
        mut rule: impl FnMut(u64) -> Rule,
    ) -> Option<u64> {
        let mut at = from;
        // Of the kept frames, those from `rest` on are not met any more.
        let (mut found, mut rest) = (0, self.count);
        let kept = loop {
            // The stack grows downward: frames below this one are gone.
            while self.frames.get(rest.wrapping_sub(1)).is_some_and(|kept| kept.sp < at.sp) {
                rest -= 1;
            }
            let first = rest;
            if self.frames.get(rest.wrapping_sub(1)).is_some_and(|kept| kept.is(&at)) {
                rest = self.unchanged(rest);
                if rest == 1 {
                    break first;
                }
                // The caller of the frame `rest - 1` is another one, so those inside it are mixed again.
                for index in (rest..first).rev() {
                    let (frame, term) = (*self.frames.get(index)?, *self.terms.get(index)?);
                    let frame = KeptFrame { bp_at: self.bp_at_on_stack(frame.bp_at), ..frame };
                    *buffer.frames.get_mut(found)? = FoundFrame { frame, term };
                    found += 1;
                }
                let KeptFrame { pc, sp, bp, .. } = *self.frames.get(rest.wrapping_sub(1))?;
                at = Registers { pc, sp, bp };
            }
            let rule = rule(at.pc);
            let offset = rule.cfa_offset();
            let cfa = match rule.kind() {
                Kind::Sp => at.sp.wrapping_add_signed(offset),
                Kind::Bp => at.bp.wrapping_add_signed(offset),
                Kind::Outermost => 0,
                _ => return None,
            };
            let is_on_stack =
                |word: u64| word >= at.sp && word & 7 == 0 && word.checked_add(8).is_some_and(|to| to <= end);
            let bp_at = match rule.saved_bp() {
                SavedBp::Unchanged => 0,
                SavedBp::FromCfa(offset) => cfa.wrapping_add_signed(offset),
                SavedBp::AtBp => at.bp,
            };
            let Registers { pc, sp, bp } = at;
            let term = if rule.has(OWN) { 0 } else { term(pc, rule) };
            *buffer.frames.get_mut(found)? = FoundFrame { frame: KeptFrame { pc, sp, bp, bp_at }, term };
            found += 1;
            if rule.kind() == Kind::Outermost {
                break 0;
            }
            if cfa <= sp || !is_on_stack(cfa.wrapping_sub(8)) || bp_at != 0 && !is_on_stack(bp_at) {
                return None;
            }
            // SAFETY: aligned words of the thread's own stack, above the frame.
            let (pc, bp) = unsafe { (load(cfa - 8), if bp_at == 0 { bp } else { load(bp_at) }) };
            // A first function of a stack made by hand.
            if pc == 0 {
                return None;
            }
            at = Registers { pc, sp: cfa, bp };
        };
        self.keep(buffer, kept, found)
    }

    /// Follows unchanged frames outward from the one before `rest`, which is one. Returns the number of
    /// frames up to the last of them.
    #[inline(always)]
    fn unchanged(&self, mut rest: usize) -> usize {
        while let (Some(frame), Some(next)) =
            (self.frames.get(rest.wrapping_sub(1)), self.frames.get(rest.wrapping_sub(2)))
        {
            // SAFETY: aligned words of the thread's own stack above the frame, which the walk has come to, or
            // of this value: they were read there when the frame was kept.
            let (pc, bp) = unsafe { (load(next.sp - 8), load(frame.bp_at)) };
            if pc != next.pc || bp != next.bp {
                break;
            }
            rest -= 1;
        }
        rest
    }

    fn bp_at_on_stack(&self, bp_at: u64) -> u64 {
        let own = (&raw const self.frames).addr() as u64;
        if bp_at.wrapping_sub(own) < size_of_val(&self.frames) as u64 { 0 } else { bp_at }
    }

    /// Keeps the frames that were found, in front of so many that were kept before. Returns the sum.
    #[inline(always)]
    fn keep(&mut self, buffer: &FoundFrames, kept: usize, found: usize) -> Option<u64> {
        let mut sum = match kept {
            0 => 0,
            kept => *self.sums.get(kept - 1)?,
        };
        self.count = kept;
        for index in (0..found).rev() {
            let FoundFrame { frame, term } = *buffer.frames.get(index)?;
            if term != 0 {
                sum = Sum::with_inner(sum, term);
            }
            let bp_at = match (frame.bp_at, self.frames.get(self.count.wrapping_sub(1))) {
                (0, Some(next)) => (&raw const next.bp).expose_provenance() as u64,
                (bp_at, _) => bp_at,
            };
            *self.frames.get_mut(self.count)? = KeptFrame { bp_at, ..frame };
            *self.terms.get_mut(self.count)? = term;
            *self.sums.get_mut(self.count)? = sum;
            self.count += 1;
        }
        Some(sum)
    }
}

/// A frame's part of a hash, never 0.
#[inline(always)]
pub(super) fn term(pc: u64, rule: Rule) -> u64 {
    fold(pc, rule.word()).max(1)
}

impl KeptFrame {
    #[inline(always)]
    fn is(&self, at: &Registers) -> bool {
        self.pc == at.pc && self.sp == at.sp && self.bp == at.bp
    }
}
