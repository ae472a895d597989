//! The frames that a thread's last walk found, by which the next walk goes faster.
//!
//! Most of a thread's outer frames are those of its last launch. A walk that follows their chain waits for each
//! frame's line of memory before it knows the address of the next one; in a decode step of PyTorch that was half of a
//! hook. So the last walk's links are kept, the outermost first. Where the chain comes to a kept link, the frame is
//! compared with it, and its pointer to the next frame with the next link: if they are equal, the walk goes on at the
//! *kept* address. The processor predicts that they are, and so reads many frames at a time. No address is used
//! before the chain has led to it, since the frame at a kept address may be gone.
//!
//! The fingerprint is mixed from the outermost frame in, and is kept for every link. Where all links from one outward
//! are unchanged, it is not computed again for them, and the counts of ended code objects are not read again either,
//! unless any has ended.

use super::identity::fold;
use super::layout::{Instruction, Layout};
use super::lives;
use super::memory::Memory;
use super::stacks::mix;
use super::walk::{Damaged, innermost};

/// Deeper stacks are walked without.
pub const LINKS_MAX: usize = 128;
/// How many stacks are walked without after a deeper one.
const PASSED_OVER: u32 = 63;
/// Frames in one piece of the interpreter's own stack are less than this apart.
const NEAR_BYTES: u64 = 64 << 10;
/// How many kept links are compared with a frame that is not the next one.
const SEARCHED: usize = 4;

/// A frame as the chain has it.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Link {
    at: u64,
    code: u64,
    instruction: u64,
}

impl Link {
    /// The kept address. The compiler does not see that it was compared with another number, and so cannot use that
    /// one, for which the processor would have to wait.
    #[inline(always)]
    fn kept_at(&self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        {
            let at: u64;
            // SAFETY: reads the field.
            unsafe {
                core::arch::asm!("mov {at}, qword ptr [{field}]", at = out(reg) at, field = in(reg) &raw const self.at,
                    options(pure, readonly, nostack, preserves_flags));
            }
            at
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.at
    }
}

/// What the frames from the outermost one in come to.
#[derive(Clone, Copy, Default)]
struct Sums {
    fingerprint: u64,
    ends: u64,
}

/// A thread's last walk. Zeroed memory is valid: no walk.
pub struct LastWalk {
    /// The frame at which the walk ended.
    outer: u64,
    /// The number of all ends before the walk.
    ends: u64,
    /// The number of links and of sums, the outermost first.
    count: usize,
    passed_over: u32,
    links: [Link; LINKS_MAX],
    sums: [Sums; LINKS_MAX],
    /// The frames of the walk under way that are not kept links, the innermost first.
    found: [Link; LINKS_MAX],
}

/// The stack is deeper than what is kept.
struct TooDeep;

enum Failure {
    Damaged,
    TooDeep,
}

impl From<Damaged> for Failure {
    fn from(_: Damaged) -> Failure {
        Failure::Damaged
    }
}

impl From<TooDeep> for Failure {
    fn from(_: TooDeep) -> Failure {
        Failure::TooDeep
    }
}

impl LastWalk {
    /// As [`fingerprint_of_links`](super::stacks::fingerprint_of_links), but another number. `None` for a stack that
    /// is deeper than what is kept.
    #[inline(always)]
    pub fn fingerprint<M: Memory>(
        &mut self,
        memory: &M,
        layout: &Layout,
        state: u64,
        outer: u64,
    ) -> Result<Option<u64>, Damaged> {
        if self.passed_over != 0 {
            self.passed_over -= 1;
            return Ok(None);
        }
        // One loop for each width of the instruction field.
        let fingerprint = match layout.instruction() {
            Instruction::Address => self.walk::<M, true>(memory, layout, state, outer),
            Instruction::Bytes | Instruction::Units => self.walk::<M, false>(memory, layout, state, outer),
        };
        match fingerprint {
            Ok(fingerprint) => Ok(Some(fingerprint)),
            Err(failure) => self.failed(failure),
        }
    }

    #[cold]
    #[inline(never)]
    fn failed(&mut self, failure: Failure) -> Result<Option<u64>, Damaged> {
        self.count = 0;
        match failure {
            Failure::Damaged => Err(Damaged),
            Failure::TooDeep => {
                self.passed_over = PASSED_OVER;
                Ok(None)
            }
        }
    }

    #[inline(always)]
    fn walk<M: Memory, const IS_ADDRESS: bool>(
        &mut self,
        memory: &M,
        layout: &Layout,
        state: u64,
        outer: u64,
    ) -> Result<u64, Failure> {
        // SYNC: read before the counts by address. A count that was kept is the current one if no code object has
        // ended since; `lives` says why each end that matters is seen.
        let ends = lives::all_ends();
        if self.ends != ends || self.outer != outer {
            (self.ends, self.outer, self.count) = (ends, outer, 0);
        }
        let is_end = |at: u64| at == 0 || at == outer;
        let mut at = innermost(memory, layout, state).ok_or(Damaged)?;
        if is_end(at) {
            return Ok(0);
        }
        let (mut found, mut rest) = (0, self.count);
        let kept = loop {
            // Links from `rest` on are not met any more.
            rest = self.candidate(rest, at);
            let first = rest;
            let mut next = at;
            // Unchanged frames, one after the other.
            while let Some(link) = self.link_at(rest, next) {
                let (now, previous) = read::<M, IS_ADDRESS>(memory, layout, link.kept_at())?;
                if now.code != link.code || now.instruction != link.instruction {
                    break;
                }
                rest -= 1;
                next = previous;
            }
            if rest == 0 && is_end(next) {
                break first;
            }
            // What is outside of them did change, so they are mixed again.
            for index in (rest..first).rev() {
                let link = self.links.get(index).copied().unwrap_or_default();
                *self.found.get_mut(found).ok_or(TooDeep)? = link;
                found += 1;
            }
            at = next;
            if is_end(at) {
                break 0;
            }
            if !memory.may_hold(at) {
                return Err(Failure::Damaged);
            }
            let (now, previous) = read::<M, IS_ADDRESS>(memory, layout, at)?;
            *self.found.get_mut(found).ok_or(TooDeep)? = now;
            found += 1;
            at = previous;
            if is_end(at) {
                break 0;
            }
        };
        let mut sums = kept.checked_sub(1).and_then(|last| self.sums.get(last)).copied().unwrap_or_default();
        self.count = kept;
        for index in (0..found).rev() {
            let link = self.found.get(index).copied().unwrap_or_default();
            sums.fingerprint = mix(sums.fingerprint, link.code, link.instruction);
            sums.ends = sums.ends.wrapping_add(lives::ends_near(link.code));
            *self.links.get_mut(self.count).ok_or(TooDeep)? = link;
            *self.sums.get_mut(self.count).ok_or(TooDeep)? = sums;
            self.count += 1;
        }
        Ok(fold(sums.fingerprint, sums.ends).max(1))
    }

    /// The last of the kept links before `rest`, if it is the frame at that address.
    #[inline(always)]
    fn link_at(&self, rest: usize, at: u64) -> Option<&Link> {
        self.links.get(rest.wrapping_sub(1)).filter(|link| link.at == at)
    }

    /// The number of kept links up to the one at that address; any number if there is none.
    #[inline(always)]
    fn candidate(&self, mut rest: usize, at: u64) -> usize {
        // The interpreter's own stack grows upward: frames above this one are gone.
        while let Some(link) = self.links.get(rest.wrapping_sub(1))
            && link.at.wrapping_sub(at).wrapping_sub(1) < NEAR_BYTES
        {
            rest -= 1;
        }
        // Frames of generators are elsewhere, as are those before 3.11.
        (0..SEARCHED).map(|skipped| rest.saturating_sub(skipped)).find(|rest| self.link_at(*rest, at).is_some()).unwrap_or(rest)
    }
}

/// A frame and the address of the next one.
#[inline(always)]
fn read<M: Memory, const IS_ADDRESS: bool>(memory: &M, layout: &Layout, at: u64) -> Result<(Link, u64), Damaged> {
    let code = memory.word(at, layout.frame_code.into()).ok_or(Damaged)?;
    let instruction = match IS_ADDRESS {
        true => memory.word(at, layout.frame_instruction.into()).ok_or(Damaged)?,
        false => memory.half(at, layout.frame_instruction.into()).ok_or(Damaged)?.into(),
    };
    let previous = memory.word(at, layout.frame_previous.into()).ok_or(Damaged)?;
    Ok((Link { at, code, instruction }, previous))
}

