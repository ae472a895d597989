//! The native frames that a thread's last walk found, by which the next walk goes faster.
//!
//! The outer frames of a launch are mostly the same as in the thread's launch before. A walk by rules takes
//! two dependent reads for each frame: the rule of its code address, from a table that is larger than a
//! core's first cache, and the return address. So two things of the last walk are kept: its frames, and the
//! words of the stack that it read. Where the next walk comes to a kept frame, it compares those words, from
//! that frame on outward, with what the stack has now. None waits for another, so that the processor reads
//! many at a time. If all are equal, all the frames are, and their sum (`sum.rs`) is known.
//!
//! Most functions use the frame pointer register for any value, which differs from one launch to the next. So
//! the word in which a function stores its caller's is compared only if a frame further out is found by it.
//!
//! The words of the last walk also serve to recognise its stack later without a walk ([`crate::expected`]).
//!
//! Only walks on the thread's own stack are kept. What is read of the stack is at or above the stack pointer
//! of the frame that the walk has come to, and so is mapped.

use super::bounds::Bounds;
use super::rule::{Kind, OWN, Rule, SavedBp};
use super::stack::{self, load};
use super::walk::{End, Registers};
use crate::fold::fold;
use crate::read_word::ReadWord;
use crate::sum::Sum;

/// A walk of more frames is not kept.
const FRAMES_MAX: usize = 160;
/// Return addresses, and the few other words that a frame's end or a frame pointer was read from.
const WORDS_MAX: usize = 256;

/// Where a walk began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NativeStart {
    sp: u64,
    bp: u64,
    /// Whether the walk needed `bp`.
    needs_bp: bool,
    /// How many libraries had been closed by then.
    epoch: u32,
}

impl NativeStart {
    pub const NONE: NativeStart = NativeStart { sp: 0, bp: 0, needs_bp: false, epoch: 0 };

    /// Whether the thread's native frames are those of the walk that began here and read these words. The
    /// caller makes sure that it was the calling thread's, and that `from` are registers in the function
    /// where it began.
    #[inline(always)]
    pub fn leads_by(&self, words: &[ReadWord], from: Registers, epoch: u32) -> bool {
        self.sp == from.sp
            && (self.bp == from.bp || !self.needs_bp)
            && self.epoch == epoch
            // SAFETY: aligned words of the thread's own stack, at or above `from.sp`.
            && words.iter().rev().all(|read| unsafe { load(read.at) } == read.word)
    }
}

#[derive(Clone, Copy)]
struct KeptFrame {
    pc: u64,
    sp: u64,
    /// Only valid if `needs_bp`.
    bp: u64,
    rule: Rule,
    /// Of this frame and of those further out.
    sum: u64,
    /// How many words lead from this frame to the outermost.
    words: usize,
    /// Whether `bp` is needed: for this frame's end, for where it stored its caller's, or further out.
    needs_bp: bool,
}

/// A frame of the walk under way.
#[derive(Clone, Copy)]
struct FoundFrame {
    at: Registers,
    rule: Rule,
}

/// A thread's last walk. Zeroed memory is valid: no walk.
#[repr(C, align(64))]
pub struct LastNativeWalk {
    /// The thread's own stack.
    own: Bounds,
    /// How many libraries had been closed by then.
    epoch: u32,
    /// Whether the walk ended at a frame without a rule. Otherwise it ended where the thread began.
    is_lost: bool,
    /// How many frames are kept.
    count: usize,
    /// The words of the outermost frame come first.
    words: [ReadWord; WORDS_MAX],
    /// The outermost first.
    frames: [KeptFrame; FRAMES_MAX],
    /// The frames of the walk under way that are to be kept anew, the innermost first.
    found: [FoundFrame; FRAMES_MAX],
}

impl LastNativeWalk {
    /// Called when a thread takes it, whose own stack may be another one.
    pub fn forget(&mut self) {
        (self.own, self.count) = (Bounds { low: 0, end: 0 }, 0);
    }

    /// The sum of the frames from there outward, the same that a plain walk makes, and how the walk ended.
    /// `None` if the walk cannot be kept.
    #[inline(always)]
    pub fn sum(&mut self, from: Registers, epoch: u32, rule: impl FnMut(u64) -> Rule) -> Option<(u64, End)> {
        if self.epoch != epoch {
            (self.epoch, self.count) = (epoch, 0);
        }
        if !self.own.hold(from.sp) {
            self.own = stack::known_own();
            if !self.own.hold(from.sp) {
                self.count = 0;
                return None;
            }
        }
        let sum = self.walk(from, rule);
        if sum.is_none() {
            self.count = 0;
        }
        Some((sum?, if self.is_lost { End::Lost } else { End::Outermost }))
    }

    /// The words of the last walk, and where it began; `None` if it could not be kept.
    pub fn words(&self) -> Option<(&[ReadWord], NativeStart)> {
        let KeptFrame { sp, bp, words, needs_bp, .. } = *self.frames.get(self.count.checked_sub(1)?)?;
        Some((self.words.get(..words)?, NativeStart { sp, bp, needs_bp, epoch: self.epoch }))
    }

    /// The code addresses of the kept frames, the outermost first.
    #[cfg(test)]
    pub fn addresses(&self) -> Vec<u64> {
        self.frames[..self.count].iter().map(|frame| frame.pc).collect()
    }

    /// The index of the innermost of the first `count` words that has changed.
    #[inline(always)]
    fn changed(&self, count: usize) -> Option<usize> {
        // SAFETY: aligned words of the thread's own stack, at or above the frame that the walk has come to:
        // they were read there when the frame was kept.
        self.words.get(..count)?.iter().rposition(|read| unsafe { load(read.at) } != read.word)
    }

    /// Walks by rules, and takes over kept frames where it comes to them. Returns the sum.
    #[inline(always)]
    fn walk(&mut self, from: Registers, mut rule: impl FnMut(u64) -> Rule) -> Option<u64> {
        let mut at = from;
        // Of the kept frames, those from index `rest` on, further inward, are not met any more.
        let (mut found, mut rest) = (0, self.count);
        let kept = loop {
            // The stack grows downward: frames below this one are gone.
            while self.frames.get(rest.wrapping_sub(1)).is_some_and(|kept| kept.sp < at.sp) {
                rest -= 1;
            }
            if let Some(kept) = self.frames.get(rest.wrapping_sub(1)).filter(|kept| kept.is(&at)) {
                let Some(changed) = self.changed(kept.words) else { break rest };
                // The frame that this word belongs to may have another caller now. The kept frames inside it
                // are still there: they are found again by their kept rules, and enter the sum anew.
                while let Some([caller, kept]) = self.frames.get(rest.wrapping_sub(2)..rest)
                    && changed < caller.words
                {
                    *self.found.get_mut(found)? = FoundFrame { at, rule: kept.rule };
                    found += 1;
                    // It may have changed since the frame was kept, if no frame needs it.
                    let bp = self.caller_bp(at, kept.rule, caller.sp)?;
                    at = Registers { pc: caller.pc, sp: caller.sp, bp };
                    rest -= 1;
                }
            }
            let rule = rule(at.pc);
            *self.found.get_mut(found)? = FoundFrame { at, rule };
            found += 1;
            let offset = rule.cfa_offset();
            let cfa = match rule.kind() {
                Kind::Sp => at.sp.wrapping_add_signed(offset),
                Kind::Bp => at.bp.wrapping_add_signed(offset),
                Kind::AtBp => self.word(at, at.bp.wrapping_add_signed(offset))?,
                Kind::Outermost => {
                    self.is_lost = false;
                    break 0;
                }
                Kind::Unknown if rule.image() != 0 => {
                    self.is_lost = true;
                    break 0;
                }
                // A rule of no image: perhaps the table that covers the code has not been read yet.
                Kind::Unknown | Kind::Signal => return None,
            };
            if cfa <= at.sp {
                return None;
            }
            let pc = self.word(at, cfa.wrapping_sub(8))?;
            // The first function of a stack that was made by hand.
            if pc == 0 {
                return None;
            }
            at = Registers { pc, sp: cfa, bp: self.caller_bp(at, rule, cfa)? };
        };
        self.keep(kept, found)
    }

    /// The word there, if it is aligned and on the thread's own stack, at or above the frame's `sp`.
    #[inline(always)]
    fn word(&self, frame: Registers, at: u64) -> Option<u64> {
        let is_on_stack = at >= frame.sp && at & 7 == 0 && at.checked_add(8)? <= self.own.end;
        // SAFETY: an aligned word of the thread's own stack, at or above a frame that the walk has come to.
        is_on_stack.then(|| unsafe { load(at) })
    }

    #[inline(always)]
    fn caller_bp(&self, frame: Registers, rule: Rule, cfa: u64) -> Option<u64> {
        match caller_bp_at(frame.bp, rule, cfa) {
            None => Some(frame.bp),
            Some(at) => self.word(frame, at),
        }
    }

    /// Keeps the frames that were found, inside of so many outer ones that were kept before. Returns the sum
    /// of all.
    #[inline(always)]
    fn keep(&mut self, kept: usize, found: usize) -> Option<u64> {
        let mut caller = match kept {
            0 => None,
            kept => Some(*self.frames.get(kept - 1)?),
        };
        self.count = kept;
        for FoundFrame { at: Registers { pc, sp, bp }, rule } in
            self.found.get(..found)?.iter().rev().copied()
        {
            let (outer, mut words) = caller.map_or((0, 0), |caller| (caller.sum, caller.words));
            let sum = if rule.has(OWN) { outer } else { Sum::with_inner(outer, term(pc, rule)) };
            let mut needs_bp =
                matches!(rule.kind(), Kind::Bp | Kind::AtBp) || rule.saved_bp() == SavedBp::AtBp;
            if let Some(caller) = caller {
                let mut read = |at: u64, word: u64| {
                    *self.words.get_mut(words)? = ReadWord { at, word };
                    words += 1;
                    Some(())
                };
                read(caller.sp.wrapping_sub(8), caller.pc)?;
                if rule.kind() == Kind::AtBp {
                    read(bp.wrapping_add_signed(rule.cfa_offset()), caller.sp)?;
                }
                if caller.needs_bp {
                    match caller_bp_at(bp, rule, caller.sp) {
                        Some(at) => read(at, caller.bp)?,
                        None => needs_bp = true,
                    }
                }
            }
            let frame = KeptFrame { pc, sp, bp, rule, sum, words, needs_bp };
            *self.frames.get_mut(self.count)? = frame;
            self.count += 1;
            caller = Some(frame);
        }
        Some(caller?.sum)
    }
}

/// Where a function stored its caller's frame pointer; `None` if it did not change that register.
#[inline(always)]
fn caller_bp_at(bp: u64, rule: Rule, cfa: u64) -> Option<u64> {
    match rule.saved_bp() {
        SavedBp::Unchanged => None,
        SavedBp::FromCfa(offset) => Some(cfa.wrapping_add_signed(offset)),
        SavedBp::AtBp => Some(bp),
    }
}

/// A frame's part of a hash, never 0.
#[inline(always)]
pub(super) fn term(pc: u64, rule: Rule) -> u64 {
    fold(pc, rule.word()).max(1)
}

impl KeptFrame {
    /// Whether the walk has come to this frame.
    #[inline(always)]
    fn is(&self, at: &Registers) -> bool {
        self.pc == at.pc && self.sp == at.sp && (self.bp == at.bp || !self.needs_bp)
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::super::walk::{Words, walk};
    use super::*;

    const WORDS: usize = 256;
    const THREAD_BEGINS: u64 = 900;
    const NO_RULE: u64 = 901;

    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (self.0 >> 33) % limit
        }
    }

    /// A code address has one rule: `pc % KINDS` says how its frame is found, and `pc / KINDS` how large it
    /// is.
    const KINDS: u64 = 6;

    fn words_of(pc: u64) -> u64 {
        5 + pc / KINDS % 4
    }

    fn rule(pc: u64) -> Rule {
        let bytes = 8 * words_of(pc) as i64;
        let rule = match (pc, pc % KINDS) {
            (THREAD_BEGINS, _) => Rule::new(Kind::Outermost, 0, SavedBp::Unchanged),
            (NO_RULE, _) => Rule::new(Kind::Unknown, 0, SavedBp::Unchanged),
            (_, 0) => Rule::new(Kind::Sp, bytes, SavedBp::Unchanged),
            (_, 1) => Rule::new(Kind::Sp, bytes, SavedBp::FromCfa(-24)),
            (_, 2) => Rule::new(Kind::Sp, bytes, SavedBp::AtBp),
            (_, 3) => Rule::new(Kind::Bp, 16, SavedBp::FromCfa(-16)),
            (_, 4) => Rule::new(Kind::AtBp, -8, SavedBp::AtBp),
            _ => Rule::new(Kind::AtBp, -8, SavedBp::FromCfa(-24)),
        };
        rule.unwrap().with(7, 0)
    }

    /// Frames on a stack, which counts as the calling thread's own.
    struct Chain {
        stack: [u64; WORDS],
        /// The outermost first.
        code: Vec<u64>,
        innermost: Registers,
    }

    impl Chain {
        fn write(&mut self, at: u64, word: u64) {
            let first = self.stack.as_ptr().expose_provenance() as u64;
            self.stack[((at - first) / 8) as usize] = word;
        }

        /// Other functions from there on inward.
        fn call(&mut self, random: &mut Random, outer: usize, depth: usize) {
            self.code.truncate(outer);
            if outer == 0 {
                self.code.push([THREAD_BEGINS, THREAD_BEGINS, NO_RULE][random.below(3) as usize]);
            }
            while self.code.len() < depth {
                self.code.push(100 + random.below(40));
            }
        }

        /// Another function in the middle, with a frame as large.
        fn replace(&mut self, random: &mut Random) {
            let index = random.below(self.code.len() as u64) as usize;
            if index > 0 {
                self.code[index] = self.code[index] / KINDS * KINDS + random.below(KINDS);
            }
        }

        /// Writes the frames. Frame pointers by which no frame is found have any value.
        fn write_frames(&mut self, random: &mut Random) {
            let end = (&raw const self.stack).addr() as u64 + 8 * WORDS as u64;
            let mut caller = Registers { pc: self.code[0], sp: end - 16, bp: random.below(9) };
            for index in 1..self.code.len() {
                let pc = self.code[index];
                let (rule, cfa) = (rule(pc), caller.sp);
                let bp = match (rule.kind(), rule.saved_bp()) {
                    (Kind::Sp, SavedBp::Unchanged) => caller.bp,
                    (Kind::Bp, _) => cfa - 16,
                    (Kind::AtBp, _) => {
                        self.write(cfa - 40, cfa);
                        cfa - 32
                    }
                    (_, SavedBp::AtBp) => cfa - 8 * (2 + random.below(3)),
                    _ => random.below(9),
                };
                self.write(cfa - 8, caller.pc);
                if let Some(at) = caller_bp_at(bp, rule, cfa) {
                    self.write(at, caller.bp);
                }
                caller = Registers { pc, sp: cfa - 8 * words_of(pc), bp };
            }
            self.innermost = caller;
        }
    }

    /// The words from an address on, up to the stack's end.
    struct From(u64, Bounds);

    impl Words for From {
        fn word(&mut self, at: u64) -> Option<u64> {
            let is_inside = at >= self.0 && at & 7 == 0 && at.checked_add(8)? <= self.1.end;
            // SAFETY: an aligned word of the stack.
            is_inside.then(|| unsafe { load(at) })
        }

        fn lives_up_to(&mut self, _: u64) {}

        fn go_on_at(&mut self, _: u64) -> bool {
            false
        }
    }

    /// The sum and the end without a kept walk.
    fn plain(from: Registers, own: Bounds) -> (u64, End) {
        let mut sum = Sum::default();
        let end = walk(&mut From(from.sp, own), from, rule, |frame| {
            sum.add_outer(term(frame.pc, frame.rule));
        });
        (sum.sum, end)
    }

    #[test]
    fn kept_walks_find_what_plain_ones_find() {
        // SAFETY: zeroed memory is valid.
        let mut last: Box<LastNativeWalk> = Box::new(unsafe { core::mem::zeroed() });
        let (mut random, nowhere) = (Random(1), Registers { pc: 0, sp: 0, bp: 0 });
        let mut chain = Chain { stack: [0; WORDS], code: Vec::new(), innermost: nowhere };
        let low = chain.stack.as_ptr().expose_provenance() as u64;
        let own = Bounds { low, end: low + 8 * WORDS as u64 };
        last.own = own;
        let (mut walked, mut by_rules, mut frames) = (0, 0, 0);
        for round in 0..20_000 {
            let depth = 1 + random.below(20) as usize;
            match random.below(5) {
                0 | 1 if round > 0 => chain.replace(&mut random),
                2 if round > 0 => {}
                _ => {
                    let outer = random.below(chain.code.len().min(depth) as u64 + 1) as usize;
                    chain.call(&mut random, outer, depth);
                }
            }
            chain.write_frames(&mut random);
            let is_damaged = random.below(4) == 0;
            if is_damaged {
                let from = chain.innermost;
                let words = [from.sp, from.bp, from.pc, 8, 0, u64::MAX];
                chain.stack[random.below(WORDS as u64) as usize] = words[random.below(6) as usize];
            }
            let (from, asked) = (chain.innermost, Cell::new(0));
            let found = last.sum(from, 0, |pc| {
                asked.set(asked.get() + 1);
                rule(pc)
            });
            let plainly = plain(from, own);
            assert!(found.is_some() || is_damaged, "round {round}: {:?}", chain.code);
            if let Some(found) = found {
                assert_eq!(found, plainly, "round {round}: {:?}", chain.code);
                walked += 1;
                by_rules += asked.get();
                frames += last.count;
                let again = last.sum(from, 0, |_| panic!("nothing has changed"));
                assert_eq!(again, Some(plainly));
            }
        }
        println!("{by_rules} of {frames} frames by rules, in {walked} walks");
        assert!(by_rules < frames / 2);
    }
}
