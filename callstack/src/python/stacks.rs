//! A thread's Python frames as part of a stack: mixed into one number, and written out with their code
//! objects.
//!
//! The steady path computes a fingerprint: a walk mixes a number for each frame's instruction, and the count
//! of code objects that ended, into a number of 64 bits. It reads frames only. If the fingerprint is not in
//! the stack cache, each code object's identity is mixed into a hash. The same stack always has the same
//! hash, while its fingerprint may change. A code object is defined at the first stack that contains it, and
//! 32 768 of them at most.
//!
//! A chain is a thread's frames, and a link is one of them. Two fingerprints are equal only if the chains
//! were equal link by link, but for a chance of about 2^-64 for each pair of stacks:
//!
//! * A link's number is the [`fold`] of the code object's address and the instruction. From Python 3.11 on an
//!   instruction lies in its code object, so that its address alone is enough, as long as the count of all
//!   ends stays the same. Otherwise it is not: a new code object may lie where one that has ended lay. In
//!   free-threaded builds a copy of bytecode may end while its code object lives, so there it never is.
//! * The links' numbers go into two sums by turns, so that a step need not wait for the one just before it. A
//!   step rotates the sum, combines it with the number by XOR, and multiplies it by an odd number. A step can
//!   be undone, so chains that differ in one link always differ in a sum. If they differ in several links,
//!   their sums are equal only where a later difference happens to cancel an earlier one. The rotation moves
//!   upper bits to where the multiplication spreads them, and makes the order of links matter. At the end the
//!   two sums are combined by [`fold`].
//! * Counts of ends never fall. So their sum over the same addresses is the same only if none has risen, and
//!   they are simply added up. Likewise the count of all ends is the same only if no single one has risen.
//!   The bit [`OF_ALL`] keeps the two kinds of count apart.

use core::cell::{Cell, RefCell};

use gputrace_producer::handles::Handles;
use gputrace_wire::definition::TEXT_MAX;

use super::code::{self, Define};
use super::identity::{self, Known};
use super::layout::{ABSENT, Layout};
use super::lives::{self, SeenEnds};
use super::memory::Memory;
use super::runtime::Runtime;
use super::walk::{
    ChainEnd, Damaged, PyFrame, Types, frames_and_entries, frames_inside, links_inside, position,
};
use crate::fold::fold;

const CODE_SLOTS: usize = 1 << 16;

/// A frame of a stack, or a boundary between two frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackItem {
    /// The code's definition, and the position in the code.
    Frame(u32, u64),
    /// A boundary, as [`frames_and_entries`] reports it.
    Entry(u64),
}

/// The defined code objects of a session.
pub struct Codes {
    ids: Handles,
}

impl Codes {
    pub fn new() -> Option<Codes> {
        Some(Codes { ids: Handles::new(CODE_SLOTS)? })
    }

    /// Calls `put` with every frame of that thread state inside the one at `outer`, innermost first.
    /// Defines the code objects that are not defined yet.
    pub fn write_frames<M: Memory>(
        &self,
        memory: &M,
        session: &impl Define,
        runtime: &Runtime,
        (state, outer): (u64, u64),
        text: &mut [u8; TEXT_MAX],
        put: impl FnMut(StackItem),
    ) -> Result<ChainEnd, Damaged> {
        let Runtime { layout, types, version, .. } = runtime;
        let mut known = Known::new(lives::current());
        let put = RefCell::new(put);
        // No function called here calls this closure again.
        let pass = |step: StackItem| put.try_borrow_mut().map_or((), |mut put| put(step));
        let each = |frame: PyFrame| {
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
            // A code object without a definition counts as one missing frame.
            pass(StackItem::Frame(code, if code == 0 { 1 } else { position(memory, layout, &frame) }));
            Ok(())
        };
        frames_and_entries(memory, layout, types, state, outer, each, |at| pass(StackItem::Entry(at)))
    }
}

/// A hash of the frames of that thread state; 0 if it has none.
#[inline(always)]
pub fn hash<M: Memory>(memory: &M, layout: &Layout, types: &Types, state: u64) -> Result<u64, Damaged> {
    hash_inside(memory, layout, types, state, 0)
}

/// The same for the frames inside the one at `outer`.
#[inline(never)]
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
    Ok(if end == ChainEnd::Cut { fold(hash, 1) } else { hash })
}

/// A fingerprint of the frames that [`hash_inside`] hashes, as they are now. If two fingerprints are equal,
/// so are the hashes. 0 if there are no frames. `seen` is the calling thread's.
#[inline(always)]
pub fn fingerprint_inside<M: Memory>(
    memory: &M,
    layout: &Layout,
    types: &Types,
    (state, outer): (u64, u64),
    seen: &Cell<SeenEnds>,
) -> Result<u64, Damaged> {
    if lives::current().is_none() {
        // Ends of code objects are not reported.
        return hash_inside(memory, layout, types, state, outer);
    }
    let has_copies = layout.frame_copy != ABSENT;
    let Some(ends) = SeenEnds::all(seen).filter(|_| !has_copies) else {
        return fingerprint_of_links(memory, layout, state, outer);
    };
    let ends = ends | OF_ALL;
    let mut sums = Sums::OF_NO_LINK;
    let end = links_inside(memory, layout, state, outer, |_, number| sums.add(number))?;
    Ok(finished(sums, ends, end))
}

/// In the count of all ends, and not in a sum of those of single addresses, which are less than half of it.
const OF_ALL: u64 = 1 << 62;

#[inline(always)]
fn finished(sums: Sums, ends: u64, end: Option<ChainEnd>) -> u64 {
    let fingerprint = fold(sums.one, sums.other);
    match end {
        None => 0,
        Some(ChainEnd::Whole) => fold(fingerprint, ends).max(1),
        Some(ChainEnd::Cut) => fold(fingerprint, !ends).max(1),
    }
}

/// The same with the counts of ends of single addresses, whether or not ends are reported.
#[inline(never)]
pub fn fingerprint_of_links<M: Memory>(
    memory: &M,
    layout: &Layout,
    state: u64,
    outer: u64,
) -> Result<u64, Damaged> {
    let (mut sums, mut ends) = (Sums::OF_NO_LINK, 0u64);
    let end = links_inside(memory, layout, state, outer, |at, number| {
        let code = memory.word(at, layout.frame_code.into()).unwrap_or(0);
        sums.add(fold(code, number));
        ends = ends.wrapping_add(lives::ends_near(code));
    })?;
    Ok(finished(sums, ends, end))
}

/// The sums of a chain's links so far: that of every other link, whose turn is next, and that of the rest.
#[derive(Clone, Copy, Debug)]
struct Sums {
    one: u64,
    other: u64,
}

impl Sums {
    /// Not zeros, so that a first link with the number 0 counts too.
    const OF_NO_LINK: Sums = Sums { one: 1, other: 2 };

    #[inline(always)]
    fn add(&mut self, number: u64) {
        let sum = self.one.rotate_left(29) ^ number;
        *self = Sums { one: self.other, other: sum.wrapping_mul(0x9fb2_1c65_1e98_df25) };
    }
}

#[inline(always)]
fn step(hash: u64, frame: &PyFrame, identity: u64) -> u64 {
    fold(hash ^ frame.code, identity ^ frame.instruction.rotate_left(17)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::memory::ProcessImage;

    /// Typical addresses of code objects, and typical calling instructions.
    const CODE: u64 = 0x7f12_3456_7000;

    fn fingerprint(numbers: impl IntoIterator<Item = u64>) -> u64 {
        let mut sums = Sums::OF_NO_LINK;
        numbers.into_iter().for_each(|number| sums.add(number));
        finished(sums, 0, Some(ChainEnd::Whole))
    }

    #[track_caller]
    fn assert_distinct(mut fingerprints: Vec<u64>) {
        let count = fingerprints.len();
        // The low bits select the cache line: no line gets much more than its share.
        let mut lines = [0u32; 1 << 12];
        for fingerprint in &fingerprints {
            lines[*fingerprint as usize % (1 << 12)] += 1;
        }
        let share = (count / lines.len()) as u32;
        assert!(lines.iter().all(|line| *line <= 2 * share + 30), "{:?} of {share}", lines.iter().max());
        fingerprints.sort_unstable();
        fingerprints.dedup();
        assert_eq!(fingerprints.len(), count);
    }

    /// Chains of 30 links, 17 of which have two variants that differ in one or two bits.
    #[test]
    fn chains_that_are_nearly_alike_have_other_fingerprints() {
        let kinds: [(u64, u64); 4] = [(0, 2), (16, 0), (64, 2), (512, 512)];
        for is_address in [false, true] {
            let mut fingerprints = Vec::new();
            for (code, instruction) in kinds {
                for choice in 0..1u64 << 17 {
                    fingerprints.push(fingerprint((0..30u64).map(|at| {
                        let is_other = choice >> at & 1;
                        let of = CODE + 0x300 * (at % 7) + code * is_other;
                        let at = 40 + instruction * is_other;
                        if is_address { of + 192 + at } else { fold(of, at) }
                    })));
                }
            }
            // Chains that no choice changes appear four times.
            fingerprints.sort_unstable();
            fingerprints.dedup();
            assert_eq!(fingerprints.len(), (4 << 17) - 3, "{is_address}");
            assert_distinct(fingerprints);
        }
    }

    /// The same function at every depth, with two links that swap their depths, also by a whole turn of the
    /// rotation.
    #[test]
    fn order_of_links_counts_at_any_depth() {
        let link = |at: u64| CODE + 192 + 2 * at;
        let mut fingerprints = Vec::new();
        for one in 0..512 {
            for other in one + 1..512 {
                let links = (0..512).map(|at| link(if at == one { 1 } else { u64::from(at == other) * 2 }));
                fingerprints.push(fingerprint(links));
            }
        }
        assert_distinct(fingerprints);
        let swapped = |distance: u64| {
            let links = |a: u64, b: u64| {
                (0..512).map(move |at| link(if at == 100 { a } else { u64::from(at == 100 + distance) * b }))
            };
            (fingerprint(links(5, 9)), fingerprint(links(9, 5)))
        };
        for distance in [1, 2, 32, 64, 128, 256] {
            let (one, other) = swapped(distance);
            assert_ne!(one, other, "{distance}");
        }
    }

    /// A code object's memory is used again, in part, by one whose instruction has the same address.
    #[test]
    fn code_objects_at_overlapping_addresses_have_other_fingerprints() {
        const START: u64 = 0x20_0000;
        let layout = Layout::of_minor(12).unwrap();
        let fingerprint = |code: u64| {
            let mut bytes = vec![0; 1 << 14];
            let mut put = |at: u64, offset: u16, word: u64| {
                let from = (at - START) as usize + usize::from(offset);
                bytes[from..from + 8].copy_from_slice(&word.to_le_bytes());
            };
            let (thread, between, frame) = (START + 0x100, START + 0x300, START + 0x400);
            put(thread, layout.thread_frame, between);
            put(between, layout.cframe_frame, frame);
            put(frame, layout.frame_code, code);
            put(frame, layout.frame_instruction, START + 0x1200);
            let memory = ProcessImage { start: START, bytes: &bytes };
            fingerprint_of_links(&memory, &layout, thread, 0).unwrap()
        };
        assert_ne!(fingerprint(START + 0x1000), fingerprint(START + 0x1100));
        assert_ne!(fingerprint(START + 0x1000), 0);
    }

    #[test]
    fn recursion_has_a_fingerprint_a_depth() {
        let mut sums = Sums::OF_NO_LINK;
        let fingerprints = (0..200_000u64).map(|_| {
            sums.add(CODE + 22);
            finished(sums, 0, Some(ChainEnd::Whole))
        });
        assert_distinct(fingerprints.collect());
    }
}
