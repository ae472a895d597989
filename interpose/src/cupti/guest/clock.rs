//! Converts CUPTI's times to the guest's clock.
//!
//! A guest may register a function that returns the time; CUPTI then gives all times in that clock. The
//! real CUPTI keeps its own clock, which the tracer's times use, so the guest's times are computed. Both
//! clocks are read together from time to time (anchors), and a time is converted by linear interpolation
//! between the two anchors around it.

use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use cupti_sys::cupti::{CUpti_TimestampCallbackFunc, CUptiResult};

use crate::cupti::root::Root;

/// The least distance of anchors. Below it, the tens of nanoseconds that a reading takes distort the slope.
const APART_NS: u64 = 5_000_000;
/// Readings per anchor; the fastest one is used.
const TRIES: usize = 5;
const ANCHORS: usize = 64;

static CALLBACK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// Not held while CUPTI or the guest is called.
static LINE: Mutex<Line> = Mutex::new(Line { anchors: Vec::new() });

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Anchor {
    cupti_ns: u64,
    guest: u64,
}

/// The anchors, in order of time.
#[derive(Clone, Debug, Default)]
pub struct Line {
    anchors: Vec<Anchor>,
}

/// Sets the guest's clock.
pub fn register(root: &Root, callback: CUpti_TimestampCallbackFunc) -> CUptiResult {
    let Some(callback) = callback else { return CUptiResult::CUPTI_ERROR_INVALID_PARAMETER };
    let new = callback as *mut ();
    if CALLBACK.swap(new, Ordering::AcqRel) != new {
        LINE.lock().unwrap_or_else(PoisonError::into_inner).anchors.clear();
    }
    read_both(root);
    CUptiResult::CUPTI_SUCCESS
}

/// Restores CUPTI's own clock.
pub fn clear() {
    CALLBACK.store(core::ptr::null_mut(), Ordering::Release);
}

/// The current time in the guest's clock; `None` if it has no clock of its own.
pub fn now() -> Option<u64> {
    let callback = CALLBACK.load(Ordering::Acquire);
    if callback.is_null() {
        return None;
    }
    // SAFETY: only `register` stores here, a function of this type, which the guest promised to keep.
    Some(unsafe { core::mem::transmute::<*mut (), unsafe extern "C" fn() -> u64>(callback)() })
}

/// Reads both clocks, if the guest has one, and stores the pair.
pub fn read_both(root: &Root) {
    let mut best: Option<(u64, Anchor)> = None;
    for _ in 0..TRIES {
        let before_ns = root.now_ns();
        let Some(guest) = now() else { return };
        let after_ns = root.now_ns();
        if before_ns == 0 {
            return;
        }
        let took_ns = after_ns.saturating_sub(before_ns);
        let anchor = Anchor { cupti_ns: before_ns + took_ns / 2, guest };
        if best.is_none_or(|(least_ns, _)| took_ns < least_ns) {
            best = Some((took_ns, anchor));
        }
    }
    if let Some((_, anchor)) = best {
        LINE.lock().unwrap_or_else(PoisonError::into_inner).add(anchor);
    }
}

/// The conversion to the guest's clock; `None` if the guest uses CUPTI's clock.
pub fn line(root: &Root) -> Option<Line> {
    if CALLBACK.load(Ordering::Acquire).is_null() {
        return None;
    }
    read_both(root);
    let line = LINE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (!line.anchors.is_empty()).then_some(line)
}

impl Line {
    fn add(&mut self, anchor: Anchor) {
        if let [.., before, last] = self.anchors.as_slice()
            && last.cupti_ns.saturating_sub(before.cupti_ns) < APART_NS
        {
            // The newest anchor replaces its predecessor if that one is too near to the anchor before.
            self.anchors.pop();
        }
        if self.anchors.last().is_some_and(|last| last.cupti_ns >= anchor.cupti_ns) {
            // The clock was set back, so earlier anchors are useless.
            self.anchors.clear();
        }
        self.anchors.push(anchor);
        if self.anchors.len() > ANCHORS {
            self.anchors.drain(..ANCHORS / 2);
        }
    }

    /// Converts a time of CUPTI's to the guest's clock. 0 means no time and stays 0.
    pub fn carry_over(&self, cupti_ns: u64) -> u64 {
        if cupti_ns == 0 {
            return 0;
        }
        let after = self.anchors.partition_point(|anchor| anchor.cupti_ns <= cupti_ns);
        let last = self.anchors.len().saturating_sub(1);
        let (from, to) = match (self.anchors.get(after.saturating_sub(1)), self.anchors.get(after)) {
            (Some(from), Some(to)) if after > 0 => (*from, *to),
            // Before the first or after the last anchor: extrapolate from the nearest segment that is long
            // enough.
            _ => match (self.anchors.get(last.saturating_sub(2).min(after)), self.anchors.get(last)) {
                (Some(from), Some(to)) => (*from, *to),
                _ => return cupti_ns,
            },
        };
        let span = i128::from(to.cupti_ns) - i128::from(from.cupti_ns);
        let rise = i128::from(to.guest) - i128::from(from.guest);
        // Start from the anchor nearer to the time.
        let near = if after > 0 && after > last { to } else { from };
        let distance = i128::from(cupti_ns) - i128::from(near.cupti_ns);
        let carried = if span > 0 { distance * rise / span } else { distance };
        (i128::from(near.guest) + carried).clamp(1, i128::from(u64::MAX)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pairs: &[(u64, u64)]) -> Line {
        let mut line = Line::default();
        pairs.iter().for_each(|(cupti_ns, guest)| line.add(Anchor { cupti_ns: *cupti_ns, guest: *guest }));
        line
    }

    #[test]
    fn times_go_along_the_line_between_two_anchors() {
        // A clock of 2 ticks a nanosecond that later has 3.
        let line = line(&[(1_000_000_000, 500), (1_010_000_000, 20_000_500), (1_020_000_000, 50_000_500)]);
        assert_eq!(line.carry_over(0), 0);
        assert_eq!(line.carry_over(1_005_000_000), 10_000_500);
        assert_eq!(line.carry_over(1_010_000_000), 20_000_500);
        assert_eq!(line.carry_over(1_015_000_000), 35_000_500);
    }

    #[test]
    fn times_outside_follow_the_slope_there() {
        let line = line(&[(10_000_000_000, 1_000_000), (10_010_000_000, 1_020_000)]);
        assert_eq!(line.carry_over(10_020_000_000), 1_040_000);
        assert_eq!(line.carry_over(9_990_000_000), 980_000);
    }

    #[test]
    fn one_anchor_is_an_offset() {
        assert_eq!(line(&[(100, 5_000)]).carry_over(150), 5_050);
    }

    #[test]
    fn near_anchors_replace_each_other_and_old_ones_go() {
        let mut line = Line::default();
        (0..1000u64).for_each(|at| line.add(Anchor { cupti_ns: 1 + at * 1_000_000, guest: at }));
        assert!(line.anchors.len() <= ANCHORS);
        let stretches = line.anchors.windows(2).map(|pair| pair[1].cupti_ns - pair[0].cupti_ns);
        assert!(stretches.clone().rev().skip(1).all(|stretch| stretch >= APART_NS), "{:?}", line.anchors);
    }

    #[test]
    fn clock_that_was_set_back_starts_new_anchors() {
        let line = line(&[(1_000_000_000, 1), (2_000_000_000, 2), (500, 3)]);
        assert_eq!(line.anchors, [Anchor { cupti_ns: 500, guest: 3 }]);
    }
}
