//! A session's rings: which there are, who takes them, and further segments when they run out.
//!
//! Ring 0 of the primary segment is for device records and ring 1 for the service thread; whoever
//! writes there sees to it that they have one owner. The others are taken and given back by the
//! program's threads.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;

use gputrace_wire::definition::role;
use gputrace_wire::ring::Ring;
use gputrace_wire::segment::{RingHeader, ring_state};

use crate::clock;
use crate::segment::{Plan, Segment};

/// The most segments of further threads: 16 × 64 rings beside the first 62.
const MORE_SEGMENTS: usize = 16;
/// Rings of the primary segment that are kept for somebody.
const RESERVED: usize = 2;
/// How many times a second a segment is tried again that could not be made or handed over. At
/// every event of every thread without a ring it would be some system calls each.
const TRIES_PER_SECOND: u64 = 20;

/// A ring and its header.
pub type Place = (&'static RingHeader, Ring<'static>);

#[derive(Debug)]
pub struct Rings {
    primary: Segment,
    plan: Plan,
    /// Filled from the front, by whoever holds `growing`.
    more: [OnceLock<Segment>; MORE_SEGMENTS],
    growing: AtomicBool,
    /// The tick before which no further segment is tried.
    grow_after_ticks: AtomicU64,
    retry_ticks: u64,
}

impl Rings {
    pub fn new(primary: Segment, plan: Plan, ticks_per_second: u64) -> Rings {
        Rings {
            primary,
            plan,
            more: [const { OnceLock::new() }; MORE_SEGMENTS],
            growing: AtomicBool::new(false),
            grow_after_ticks: AtomicU64::new(0),
            retry_ticks: ticks_per_second / TRIES_PER_SECOND,
        }
    }

    /// The ring kept for device records, or the service thread's.
    pub fn reserved(&self, role: u64) -> Option<Place> {
        let index = if role == role::DEVICE_RECORDS { 0 } else { 1 };
        Some((self.primary.rings.get(index)?, self.primary.ring(self.plan, index)?))
    }

    /// Takes a free ring. Where there is none another segment is made, and `hand_over` gets its
    /// descriptor to send.
    pub fn take(&self, hand_over: impl Fn(i32) -> bool) -> Option<Place> {
        if let Some(found) = take_from(&self.primary, self.plan, RESERVED) {
            return Some(found);
        }
        loop {
            let mut seen = 0;
            for segment in self.more.iter().map_while(OnceLock::get) {
                if let Some(found) = take_from(segment, Plan::MORE_THREADS, 0) {
                    return Some(found);
                }
                seen += 1;
            }
            if !self.grow(seen, &hand_over) {
                return None;
            }
        }
    }

    /// Adds a segment to the `seen` ones. False if another thread is at it (its caller tries
    /// again at the next event), if it failed a moment ago, or if there can be no more.
    fn grow(&self, seen: usize, hand_over: impl Fn(i32) -> bool) -> bool {
        let Some(slot) = self.more.get(seen) else { return false };
        if clock::now() < self.grow_after_ticks.load(Ordering::Relaxed)
            || self.growing.swap(true, Ordering::Acquire)
        {
            return false;
        }
        let grown = slot.get().is_some()
            || make(hand_over).is_some_and(|segment| {
                // Nobody else fills it: we hold `growing`.
                slot.set(segment).is_ok()
            });
        if !grown {
            self.grow_after_ticks.store(clock::now().saturating_add(self.retry_ticks), Ordering::Relaxed);
        }
        // SYNC: pairs with the Acquire swap above: who grows next sees what was filled.
        self.growing.store(false, Ordering::Release);
        grown
    }

    /// Populates what the program's threads will write next, on their rings' first lap. `heads`
    /// keeps where they were at the last call: a ring that stands still gets no more memory.
    pub fn populate(&self, heads: &mut [u64; 64]) {
        /// 512 KiB: 160 000 launches a second between two calls.
        const AHEAD_CELLS: u64 = 8192;
        let rings = self.primary.rings.iter().zip(heads.iter_mut()).enumerate();
        for (index, (ring, last)) in rings.skip(RESERVED) {
            let head = ring.head.load(Ordering::Relaxed);
            if head != *last && head < ring.capacity_cells.load(Ordering::Relaxed) {
                self.primary.populate(self.plan, index, head, AHEAD_CELLS);
            }
            *last = head;
        }
    }
}

/// Makes a segment of rings and hands it over, or leaves nothing behind.
fn make(hand_over: impl Fn(i32) -> bool) -> Option<Segment> {
    let (segment, descriptor) = Segment::create(Plan::MORE_THREADS)?;
    segment.publish();
    let taken = hand_over(descriptor);
    // SAFETY: the descriptor was made above and is not used again.
    unsafe { libc::close(descriptor) };
    if !taken {
        // SAFETY: the segment was made above and no thread has seen it.
        unsafe { segment.discard() };
        return None;
    }
    Some(segment)
}

fn take_from(segment: &Segment, plan: Plan, first: usize) -> Option<Place> {
    use ring_state::{FREE, OWNED};
    for (index, header) in segment.rings.iter().enumerate().skip(first) {
        // SYNC: Acquire pairs with the Release store of FREE by the ring's last owner, so that
        // its positions and cells come before ours.
        if header.state.load(Ordering::Relaxed) == FREE
            && header.state.compare_exchange(FREE, OWNED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return Some((header, segment.ring(plan, index)?));
        }
    }
    None
}
