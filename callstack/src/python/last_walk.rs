//! The frames that a thread's last walk found, by which the next walk goes faster.
//!
//! Most of a thread's outer frames are those of its last launch. A walk that follows their chain waits for
//! each frame's line of memory before it knows the address of the next one; in a decode step of PyTorch that
//! was half of a hook. So the last walk's links are kept, the outermost first. Where the chain comes to a
//! kept link, the frame is compared with it, and its pointer to the next frame with the next link: if they
//! are equal, the walk goes on at the *kept* address. The processor predicts that they are, and so reads many
//! frames at a time. No address is used before the chain has led to it, since the frame at a kept address may
//! be gone.
//!
//! The sum that the fingerprint is made of is kept for every link. Where all links from one outward are
//! unchanged, it is not computed again for them, and the counts of ended code objects are not read again
//! either, unless any has ended.

use super::identity::fold;
use super::layout::{Instruction, Layout};
use super::lives;
use super::memory::Memory;
use super::walk::{Damaged, innermost};
use crate::sum::Sum;

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
    /// The kept address. The compiler does not see that it was compared with another number, and so cannot
    /// use that one, for which the processor would have to wait.
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
    links: u64,
    ends: u64,
}

/// A thread's last walk. Zeroed memory is valid: no walk.
#[repr(C, align(64))]
pub struct LastPythonWalk {
    /// The frame at which the walk ended.
    outer: u64,
    /// The number of all ends before the walk.
    ends: u64,
    /// The number of links and of sums, the outermost first.
    count: usize,
    passed_over: u32,
    links: [Link; LINKS_MAX],
    sums: [Sums; LINKS_MAX],
}

/// The frames of a walk under way that are not kept links, the innermost first.
pub struct FoundLinks([Link; LINKS_MAX]);

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

impl LastPythonWalk {
    /// As [`fingerprint_of_links`](super::stacks::fingerprint_of_links); `None` for a stack that is deeper
    /// than what is kept.
    #[inline(always)]
    pub fn fingerprint<M: Memory>(
        &mut self,
        buffer: &mut FoundLinks,
        memory: &M,
        layout: &Layout,
        (state, outer): (u64, u64),
    ) -> Result<Option<u64>, Damaged> {
        if self.passed_over != 0 {
            self.passed_over -= 1;
            return Ok(None);
        }
        // One loop for each width of the instruction field.
        let fingerprint = match layout.instruction() {
            Instruction::Address => self.walk::<M, true>(buffer, memory, layout, (state, outer)),
            Instruction::Bytes | Instruction::Units => {
                self.walk::<M, false>(buffer, memory, layout, (state, outer))
            }
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
        buffer: &mut FoundLinks,
        memory: &M,
        layout: &Layout,
        (state, outer): (u64, u64),
    ) -> Result<u64, Failure> {
        // SYNC: read before the counts by address. A count that was kept is the current one if no code object
        // has ended since; `lives` says why each end that matters is seen.
        let ends = lives::all_ends();
        if self.ends != ends || self.outer != outer {
            (self.ends, self.outer, self.count) = (ends, outer, 0);
        }
        let is_end = |at: u64| at == 0 || at == outer;
        let mut at = innermost(memory, layout, state).ok_or(Damaged)?;
        if is_end(at) {
            return Ok(0);
        }
        let offsets = [layout.frame_code, layout.frame_instruction, layout.frame_previous].map(u64::from);
        let (mut found, mut rest) = (0, self.count);
        let kept = loop {
            // Links from `rest` on are not met any more.
            rest = self.candidate(rest, at);
            let first = rest;
            let mut next = at;
            // Unchanged frames, one after the other.
            for link in self.links.get(..rest).unwrap_or_default().iter().rev() {
                if link.at != next {
                    break;
                }
                let (now, previous) = read::<M, IS_ADDRESS>(memory, offsets, link.kept_at())?;
                if (now.code ^ link.code) | (now.instruction ^ link.instruction) != 0 {
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
                *buffer.0.get_mut(found).ok_or(TooDeep)? = link;
                found += 1;
            }
            at = next;
            if is_end(at) {
                break 0;
            }
            if !memory.may_hold(at) {
                return Err(Failure::Damaged);
            }
            let (now, previous) = read::<M, IS_ADDRESS>(memory, offsets, at)?;
            *buffer.0.get_mut(found).ok_or(TooDeep)? = now;
            found += 1;
            at = previous;
            if is_end(at) {
                break 0;
            }
        };
        let mut sums = kept.checked_sub(1).and_then(|last| self.sums.get(last)).copied().unwrap_or_default();
        self.count = kept;
        for index in (0..found).rev() {
            let link = buffer.0.get(index).copied().unwrap_or_default();
            sums.links = Sum::with_inner(sums.links, fold(link.code, link.instruction));
            sums.ends = sums.ends.wrapping_add(lives::ends_near(link.code));
            *self.links.get_mut(self.count).ok_or(TooDeep)? = link;
            *self.sums.get_mut(self.count).ok_or(TooDeep)? = sums;
            self.count += 1;
        }
        Ok(fold(sums.links, sums.ends).max(1))
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
        (0..SEARCHED)
            .map(|skipped| rest.saturating_sub(skipped))
            .find(|rest| self.link_at(*rest, at).is_some())
            .unwrap_or(rest)
    }
}

/// A frame and the address of the next one. The offsets are those of the code, the instruction and that
/// address.
#[inline(always)]
fn read<M: Memory, const IS_ADDRESS: bool>(
    memory: &M,
    [at_code, at_instruction, at_previous]: [u64; 3],
    at: u64,
) -> Result<(Link, u64), Damaged> {
    let code = memory.word(at, at_code).ok_or(Damaged)?;
    let instruction = match IS_ADDRESS {
        true => memory.word(at, at_instruction).ok_or(Damaged)?,
        false => memory.half(at, at_instruction).ok_or(Damaged)?.into(),
    };
    let previous = memory.word(at, at_previous).ok_or(Damaged)?;
    Ok((Link { at, code, instruction }, previous))
}

#[cfg(test)]
mod tests {
    use super::super::layout::ABSENT;
    use super::super::memory::ProcessImage;
    use super::super::stacks::fingerprint_of_links;
    use super::*;

    const START: u64 = 0x20_0000;
    const STATE: u64 = START + 0x100;
    const BETWEEN: u64 = START + 0x300;
    /// Of code objects whose ends no other test counts.
    const CODE: u64 = START + 0x5000;
    const FRAMES: u64 = START + 0x8000;
    const ELSEWHERE: u64 = START + 0x1_8000;

    fn none() -> Box<(LastPythonWalk, FoundLinks)> {
        // SAFETY: zeroed memory is valid.
        Box::new(unsafe { core::mem::zeroed() })
    }

    fn fingerprint<M: Memory>(
        (last, buffer): &mut (LastPythonWalk, FoundLinks),
        memory: &M,
        layout: &Layout,
        outer: u64,
    ) -> Result<Option<u64>, Damaged> {
        last.fingerprint(buffer, memory, layout, (STATE, outer))
    }

    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) % limit
        }
    }

    /// A process whose thread has these frames, the outermost first.
    struct Process {
        layout: Layout,
        bytes: Vec<u8>,
        frames: Vec<Link>,
    }

    impl Process {
        fn new(minor: u8) -> Process {
            let layout = Layout::of_minor(minor).unwrap();
            Process { layout, bytes: vec![0; 0x2_0000], frames: Vec::new() }
        }

        fn put(&mut self, at: u64, offset: u16, value: u64) {
            let from = (at - START) as usize + usize::from(offset);
            self.bytes[from..from + 8].copy_from_slice(&value.to_le_bytes());
        }

        /// Writes the chain; what was elsewhere is overwritten.
        fn write(&mut self) {
            self.bytes.fill(0xa5);
            let (layout, mut previous) = (self.layout, 0);
            for frame in self.frames.clone() {
                // Some versions have fewer bytes of the instruction, which is written first.
                self.put(frame.at, layout.frame_instruction, frame.instruction);
                self.put(frame.at, layout.frame_code, frame.code);
                self.put(frame.at, layout.frame_previous, previous);
                previous = frame.at;
            }
            if layout.cframe_frame == ABSENT {
                self.put(STATE, layout.thread_frame, previous);
            } else {
                self.put(STATE, layout.thread_frame, BETWEEN);
                self.put(BETWEEN, layout.cframe_frame, previous);
            }
        }

        fn push(&mut self, numbers: &mut Numbers) {
            let depth = self.frames.len() as u64;
            let is_elsewhere = numbers.below(8) == 0;
            let at = if is_elsewhere { ELSEWHERE } else { FRAMES } + 0x100 * depth;
            let (code, instruction) = (CODE + 0x40 * numbers.below(6), 2 * numbers.below(4));
            self.frames.push(Link { at, code, instruction });
        }

        fn fingerprints(
            &self,
            last: &mut (LastPythonWalk, FoundLinks),
            outer: u64,
        ) -> [Result<Option<u64>, Damaged>; 2] {
            let memory = ProcessImage { start: START, bytes: &self.bytes };
            let plain = fingerprint_of_links(&memory, &self.layout, STATE, outer).map(Some);
            [fingerprint(last, &memory, &self.layout, outer), plain]
        }
    }

    #[test]
    fn fingerprint_is_that_of_a_walk_without_it() {
        for minor in 8..=12 {
            let (mut process, mut numbers, mut last) =
                (Process::new(minor), Numbers(77 + u64::from(minor)), none());
            for round in 0..4_000 {
                match numbers.below(4) {
                    0 if process.frames.len() < 100 => {
                        (0..numbers.below(12)).for_each(|_| process.push(&mut numbers))
                    }
                    1 => process
                        .frames
                        .truncate(process.frames.len().saturating_sub(numbers.below(9) as usize)),
                    2 if !process.frames.is_empty() => {
                        let index = numbers.below(process.frames.len() as u64) as usize;
                        process.frames[index].instruction = 2 * numbers.below(4);
                    }
                    3 if !process.frames.is_empty() => {
                        let index = process.frames.len() - 1;
                        process.frames[index].code = CODE + 0x40 * numbers.below(6);
                    }
                    _ => {}
                }
                process.write();
                let outer = match (numbers.below(5), process.frames.len()) {
                    (0, depth @ 1..) => process.frames[numbers.below(depth as u64) as usize].at,
                    _ => 0,
                };
                let [found, plain] = process.fingerprints(&mut last, outer);
                assert_eq!(found, plain, "3.{minor}, round {round}, {} frames", process.frames.len());
            }
        }
    }

    #[test]
    fn kept_address_is_not_read_unless_the_chain_leads_to_it() {
        let (mut process, mut numbers, mut last) = (Process::new(12), Numbers(5), none());
        (0..30).for_each(|_| process.push(&mut numbers));
        process.write();
        assert!(
            fingerprint(&mut last, &ProcessImage { start: START, bytes: &process.bytes }, &process.layout, 0)
                .is_ok()
        );
        // The outer frames are gone, and their memory is not mapped.
        process.frames.drain(..20);
        process.write();
        let gone = (process.frames.iter().map(|frame| frame.at).min().unwrap() - START) as usize;
        struct Mapped<'b>(ProcessImage<'b>, u64);
        impl Memory for Mapped<'_> {
            fn may_hold(&self, base: u64) -> bool {
                self.0.may_hold(base)
            }
            fn read(&self, base: u64, offset: u64, into: &mut [u8]) -> bool {
                assert!(base < FRAMES || base >= self.1, "{base:#x} is gone");
                self.0.read(base, offset, into)
            }
        }
        let memory = Mapped(ProcessImage { start: START, bytes: &process.bytes }, START + gone as u64);
        let found = fingerprint(&mut last, &memory, &process.layout, 0);
        assert_eq!(found, fingerprint_of_links(&memory, &process.layout, STATE, 0).map(Some));
    }

    #[test]
    fn deep_stack_and_damage_are_left_to_the_plain_walk() {
        let (mut process, mut numbers, mut last) = (Process::new(12), Numbers(9), none());
        (0..LINKS_MAX as u64 / 2).for_each(|_| process.push(&mut numbers));
        process.write();
        assert!(
            matches!(process.fingerprints(&mut last, 0), [Ok(Some(one)), Ok(Some(other))] if one == other)
        );
        // A ring.
        let first = process.frames[0].at;
        process.put(first, process.layout.frame_previous, first);
        assert_eq!(process.fingerprints(&mut last, 0)[0], Ok(None));
        for _ in 0..PASSED_OVER {
            assert_eq!(process.fingerprints(&mut last, 0)[0], Ok(None));
        }
        process.put(first, process.layout.frame_previous, 3);
        assert_eq!(process.fingerprints(&mut last, 0), [Err(Damaged); 2]);
        process.put(first, process.layout.frame_previous, 0);
        assert!(
            matches!(process.fingerprints(&mut last, 0), [Ok(Some(one)), Ok(Some(other))] if one == other)
        );
    }
}
