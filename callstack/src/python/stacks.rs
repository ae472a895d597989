//! A thread's Python frames as part of a stack: mixed into one number, and told with their code objects.
//!
//! The steady path is a glance: a walk that mixes the address of each frame's code object, its instruction, and how many code
//! objects ended at such addresses into a number of 64 bits. It looks at frames only. Where that number says nothing, each code
//! object's identity is mixed into a hash, which the same stack has for good. A code object is defined at the first stack that
//! it is in: 32 768 of them at most.
//!
//! Two glances are the same if the chains were, link by link, up to a chance of 2^-64 for each pair of stacks:
//!
//! * A link's address and instruction make one number by [`fold`], a product of 128 bits of which every bit depends on all
//!   bits of both. So links that are nearly alike, as all are (addresses alike in their low bits, instructions that differ by 2), give numbers that
//!   have nothing to do with one another.
//! * These are mixed in order: the number before is rotated, the link's is added, and the sum is multiplied by an odd number.
//!   Each step maps numbers before to numbers after one to one, so that two chains that differ in one link never
//!   meet but by that link's number, and such as differ in several meet by chance. The multiplication and the rotation make
//!   links that change places count. What is slow, the product, waits for no other link; what waits takes as long as
//!   it takes to find the next one.
//! * Counts of ends never fall, so that their sum over the same addresses is the same only if none has risen: they are added up.

use core::cell::RefCell;

use gputrace_producer::handles::Handles;
use gputrace_wire::definition::TEXT_MAX;

use super::code::{self, Define};
use super::identity::{self, Known, fold};
use super::layout::Layout;
use super::lives;
use super::memory::Memory;
use super::runtime::Runtime;
use super::walk::{Damaged, End, Frame, Types, frames_and_entries, frames_inside, links_inside, position};

const CODE_SLOTS: usize = 1 << 16;

/// A frame as a stack has it, or what lies between two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// The code's definition, and the position in it.
    Frame(u32, u64),
    /// As [`frames_and_entries`] says it.
    Entry(u64),
}

/// The code objects of a session that are defined.
pub struct Codes {
    ids: Handles,
}

impl Codes {
    pub fn new() -> Option<Codes> {
        Some(Codes { ids: Handles::new(CODE_SLOTS)? })
    }

    /// Calls `put` with every frame of that thread state, inside of the one at `outer`, innermost first. The code objects
    /// that nobody has said yet are defined.
    pub fn tell<M: Memory>(
        &self,
        memory: &M,
        session: &impl Define,
        runtime: &Runtime,
        (state, outer): (u64, u64),
        text: &mut [u8; TEXT_MAX],
        put: impl FnMut(Told),
    ) -> Result<End, Damaged> {
        let Runtime { layout, types, version, .. } = runtime;
        let mut known = Known::new(lives::current());
        let put = RefCell::new(put);
        // Nothing that is called here comes back here.
        let tell = |told: Told| put.try_borrow_mut().map_or((), |mut put| put(told));
        let each = |frame: Frame| {
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
            // What is missing counts for one frame.
            tell(Told::Frame(code, if code == 0 { 1 } else { position(memory, layout, &frame) }));
            Ok(())
        };
        frames_and_entries(memory, layout, types, state, outer, each, |at| tell(Told::Entry(at)))
    }
}

/// A hash of the frames of that thread state; 0 where it has none.
#[inline(always)]
pub fn hash<M: Memory>(memory: &M, layout: &Layout, types: &Types, state: u64) -> Result<u64, Damaged> {
    hash_inside(memory, layout, types, state, 0)
}

/// The same of those frames that are inside of the one at `outer`.
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
    Ok(if end == End::Cut { fold(hash, 1) } else { hash })
}

/// A number for those frames as they are now, by which a stack may be known that [`hash_inside`] tells of: where it was this
/// before, so was the hash. 0 where there are none.
#[inline(always)]
pub fn glance_inside<M: Memory>(
    memory: &M,
    layout: &Layout,
    types: &Types,
    state: u64,
    outer: u64,
) -> Result<u64, Damaged> {
    if lives::current().is_none() {
        // The ends of code objects are not heard of.
        return hash_inside(memory, layout, types, state, outer);
    }
    glance_of_links(memory, layout, state, outer)
}

/// The same, whether ends are heard of or not.
#[inline(always)]
pub fn glance_of_links<M: Memory>(
    memory: &M,
    layout: &Layout,
    state: u64,
    outer: u64,
) -> Result<u64, Damaged> {
    let (mut glance, mut ends) = (0u64, 0u64);
    let end = links_inside(memory, layout, state, outer, |code, instruction| {
        glance = mix(glance, code, instruction);
        ends = ends.wrapping_add(lives::ends_near(code));
    })?;
    Ok(match end {
        None => 0,
        Some(End::Whole) => fold(glance, ends).max(1),
        Some(End::Cut) => fold(glance, !ends).max(1),
    })
}

#[inline(always)]
fn mix(glance: u64, code: u64, instruction: u64) -> u64 {
    glance.rotate_left(29).wrapping_add(fold(code, instruction)).wrapping_mul(0x9fb2_1c65_1e98_df25)
}

#[inline(always)]
fn step(hash: u64, frame: &Frame, identity: u64) -> u64 {
    fold(hash ^ frame.code, identity ^ frame.instruction.rotate_left(17)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where code objects lie close together, and where functions call.
    const CODE: u64 = 0x7f12_3456_7000;

    fn glance(links: impl IntoIterator<Item = (u64, u64)>) -> u64 {
        links.into_iter().fold(0, |glance, (code, instruction)| mix(glance, code, instruction))
    }

    #[track_caller]
    fn assert_distinct(mut glances: Vec<u64>) {
        let count = glances.len();
        // By their low bits they are filed: no line gets much more than its share.
        let mut lines = [0u32; 1 << 12];
        for glance in &glances {
            lines[*glance as usize % (1 << 12)] += 1;
        }
        let share = (count / lines.len()) as u32;
        assert!(lines.iter().all(|line| *line <= 2 * share + 30), "{:?} of {share}", lines.iter().max());
        glances.sort_unstable();
        glances.dedup();
        assert_eq!(glances.len(), count);
    }

    /// Chains of 30 links of which each of 17 is one of two that differ in one bit or two.
    #[test]
    fn chains_that_are_nearly_alike_have_other_glances() {
        let kinds: [(u64, u64); 4] = [(0, 2), (16, 0), (64, 2), (512, 512)];
        for is_address in [false, true] {
            let mut glances = Vec::new();
            for (code, instruction) in kinds {
                for choice in 0..1u64 << 17 {
                    glances.push(glance((0..30u64).map(|at| {
                        let is_other = choice >> at & 1;
                        let of = CODE + 0x300 * (at % 7) + code * is_other;
                        let start = if is_address { of + 192 } else { 0 };
                        (of, start + 40 + instruction * is_other)
                    })));
                }
            }
            // What none of the choices changes is there four times.
            glances.sort_unstable();
            glances.dedup();
            assert_eq!(glances.len(), (4 << 17) - 3, "{is_address}");
            assert_distinct(glances);
        }
    }

    /// The same function at every depth, with two places that change their depths: also where a rotation has come round.
    #[test]
    fn the_order_of_links_counts_at_any_depth() {
        let link = |at: u64| (CODE, CODE + 192 + 2 * at);
        let mut glances = Vec::new();
        for one in 0..512 {
            for other in one + 1..512 {
                let links = (0..512).map(|at| link(if at == one { 1 } else { u64::from(at == other) * 2 }));
                glances.push(glance(links));
            }
        }
        assert_distinct(glances);
        let swapped = |distance: u64| {
            let links = |a: u64, b: u64| {
                (0..512).map(move |at| link(if at == 100 { a } else { u64::from(at == 100 + distance) * b }))
            };
            (glance(links(5, 9)), glance(links(9, 5)))
        };
        for distance in [1, 2, 32, 64, 128, 256] {
            let (one, other) = swapped(distance);
            assert_ne!(one, other, "{distance}");
        }
    }

    #[test]
    fn every_depth_of_a_recursion_has_its_glance() {
        let mut glance = 0;
        let glances = (0..200_000u64).map(|_| {
            glance = mix(glance, CODE, 22);
            glance
        });
        assert_distinct(glances.collect());
    }
}
