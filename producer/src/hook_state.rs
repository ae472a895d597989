//! What hooks do with calls, in one word, which a hook reads once before the call and once after it.
//!
//! ```text
//!  bit 31 … 11    10      9 8       7           6         5         4 3      2                1 0
//!     ┌───────┬────────┬─────────┬───────────┬─────────┬─────────┬────────┬────────────────┬───────────┐
//!     │window │ held   │Launches │ transfers │no native│no python│ Timing │counts launches │ Recording │
//!     └───────┴────────┴─────────┴───────────┴─────────┴─────────┴────────┴────────────────┴───────────┘
//! ```
//!
//! 0 stands for all: everything is recorded, with device times and with all frames. The window is that of
//! device times that is open, as calls have it ([`gputrace_wire::call::Call::window`]); 0 for none.

use gputrace_wire::run_settings::Frames;

/// What hooks do with calls that succeed and that put work on a device or wait for it. All other calls are
/// recorded in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recording {
    On = 0,
    /// They are counted, and marked in the ring: device records may still come.
    Marked = 1,
    /// They are counted. The word has two numbers for this: 2, and 3 where the session has been paused from
    /// its begin ([`HookState::counts_under_way`]).
    Off = 2,
}

/// Whether calls that are recorded get device times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    On = 0,
    /// They do not, and are marked in the ring: device records may still come.
    Marked = 1,
    /// They do not.
    Off = 2,
}

/// What is recorded of launches of kernels that are made outside of windows of device times. Less of it is
/// how a budget is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Launches {
    #[default]
    Whole = 0,
    /// All but their stacks.
    Unstacked = 1,
    /// How many there were of each kernel on each stream.
    Counted = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HookState(u32);

const RECORDING: u32 = 3;
const OFF_FROM_BEGIN: u32 = 3;
const COUNTS_LAUNCHES: u32 = 4;
const TIMING_SHIFT: u32 = 3;
const TIMING: u32 = 3 << TIMING_SHIFT;
const NO_PYTHON: u32 = 32;
const NO_NATIVE: u32 = 64;
const TIMES_TRANSFERS: u32 = 128;
const LAUNCHES_SHIFT: u32 = 8;
const LAUNCHES: u32 = 3 << LAUNCHES_SHIFT;
const COUNTED: u32 = (Launches::Counted as u32) << LAUNCHES_SHIFT;
const HOLDS_CALLS: u32 = 1 << 10;
const WINDOW_SHIFT: u32 = 11;
const WINDOW: u32 = !0 << WINDOW_SHIFT;
/// The largest window that the word can hold.
pub const WINDOW_MAX: u32 = WINDOW >> WINDOW_SHIFT;

/// The bits that a launch's hook looks at first. If they equal [`PASSES_OVER_LAUNCHES`], the session may be
/// paused for this launch, and the hook then asks [`HookState::passes_over_launches`]. The lowest bit is left
/// out: both 2 and 3 say that the session is paused.
pub const OF_LAUNCHES: u32 = (RECORDING | COUNTS_LAUNCHES) & !1;
pub const PASSES_OVER_LAUNCHES: u32 = Recording::Off as u32;

impl HookState {
    #[inline(always)]
    pub fn from_word(word: u32) -> HookState {
        HookState(word)
    }

    pub fn to_word(self) -> u32 {
        self.0
    }

    #[inline(always)]
    pub fn recording(self) -> Recording {
        match self.0 & RECORDING {
            0 => Recording::On,
            1 => Recording::Marked,
            _ => Recording::Off,
        }
    }

    #[inline(always)]
    pub fn timing(self) -> Timing {
        match (self.0 & TIMING) >> TIMING_SHIFT {
            0 => Timing::On,
            1 => Timing::Marked,
            _ => Timing::Off,
        }
    }

    /// Whether device times were off or marked at one of two moments, or the moments are in two windows.
    #[inline(always)]
    pub fn is_untimed_at_either(self, other: HookState) -> bool {
        (self.0 | other.0) & TIMING | (self.0 ^ other.0) & WINDOW != 0
    }

    /// The window of device times; 0 for none.
    #[inline(always)]
    pub fn window(self) -> u32 {
        self.0 >> WINDOW_SHIFT
    }

    /// Whether a range of what is recorded begins or ends at a launch's number, so that launches are
    /// numbered. [`Launches::Counted`] is something else.
    #[inline(always)]
    pub fn counts_launches(self) -> bool {
        self.0 & COUNTS_LAUNCHES != 0
    }

    /// Whether less than all is recorded of a launch made now.
    #[inline(always)]
    pub fn records_less(self) -> bool {
        self.0 & LAUNCHES != 0 && self.0 & WINDOW == 0
    }

    /// Whether all is recorded of a launch made now, with device times if any are asked for, and no window or
    /// range depends on it.
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        self.0 & (RECORDING | COUNTS_LAUNCHES | TIMING | LAUNCHES | HOLDS_CALLS | WINDOW) == 0
    }

    /// Whether the session is paused, no range depends on a launch made now, and it is not to wait.
    #[inline(always)]
    pub fn passes_over_launches(self) -> bool {
        self.0 & (OF_LAUNCHES | HOLDS_CALLS) == PASSES_OVER_LAUNCHES
    }

    /// Whether calls of the driver's are to wait before they begin. All else that a hook does is as ever, so
    /// the state that [`Session::hook_state`](crate::session::Session::hook_state) returns is without this.
    #[inline(always)]
    pub fn holds_calls(self) -> bool {
        self.0 & HOLDS_CALLS != 0
    }

    #[must_use]
    pub fn with_held_calls(self, are_held: bool) -> HookState {
        HookState(self.0 & !HOLDS_CALLS | if are_held { HOLDS_CALLS } else { 0 })
    }

    /// Whether launches under way are counted, and copies too: the session has been paused from its begin,
    /// and CUPTI does not call back at launches yet.
    #[inline(always)]
    pub fn counts_under_way(self) -> bool {
        self.0 & RECORDING == OFF_FROM_BEGIN
    }

    /// Paused, as a session begins.
    #[must_use]
    pub fn paused_from_begin(self) -> HookState {
        HookState(self.0 | OFF_FROM_BEGIN)
    }

    /// Whether a launch made now is only counted, and its hook does nothing else.
    #[inline(always)]
    pub fn only_counts_launches(self) -> bool {
        self.0 & (RECORDING | COUNTS_LAUNCHES | LAUNCHES | WINDOW) == COUNTED
    }

    /// What is recorded of launches outside of windows.
    pub fn launches(self) -> Launches {
        match (self.0 & LAUNCHES) >> LAUNCHES_SHIFT {
            0 => Launches::Whole,
            1 => Launches::Unstacked,
            _ => Launches::Counted,
        }
    }

    /// Whether copies and fills get device times whatever the timing is.
    pub fn times_transfers(self) -> bool {
        self.0 & TIMES_TRANSFERS != 0
    }

    #[inline(always)]
    pub fn has_python(self) -> bool {
        self.0 & NO_PYTHON == 0
    }

    #[inline(always)]
    pub fn has_native(self) -> bool {
        self.0 & NO_NATIVE == 0
    }

    #[must_use]
    pub fn with_recording(self, recording: Recording) -> HookState {
        HookState(self.0 & !RECORDING | recording as u32)
    }

    #[must_use]
    pub fn with_times_transfers(self, times: bool) -> HookState {
        HookState(self.0 & !TIMES_TRANSFERS | if times { TIMES_TRANSFERS } else { 0 })
    }

    #[must_use]
    pub fn with_launches(self, launches: Launches) -> HookState {
        HookState(self.0 & !LAUNCHES | (launches as u32) << LAUNCHES_SHIFT)
    }

    /// In no window.
    #[must_use]
    pub fn with_timing(self, timing: Timing) -> HookState {
        HookState(self.0 & !(TIMING | WINDOW) | (timing as u32) << TIMING_SHIFT)
    }

    /// With device times, in that window.
    #[must_use]
    pub fn in_window(self, window: u32) -> HookState {
        HookState(self.0 & !(TIMING | WINDOW) | window << WINDOW_SHIFT)
    }

    #[must_use]
    pub fn with_counts_launches(self, counts: bool) -> HookState {
        HookState(self.0 & !COUNTS_LAUNCHES | if counts { COUNTS_LAUNCHES } else { 0 })
    }

    #[must_use]
    pub fn with_frames(self, frames: Frames) -> HookState {
        let absent = |has: bool, bit: u32| if has { 0 } else { bit };
        let without = absent(frames.python, NO_PYTHON) | absent(frames.native, NO_NATIVE);
        HookState(self.0 & !(NO_PYTHON | NO_NATIVE) | without)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_change_independently() {
        let frames = Frames { python: true, native: false };
        let state = HookState::from_word(0)
            .with_recording(Recording::Off)
            .with_timing(Timing::Marked)
            .with_frames(frames)
            .with_counts_launches(true);
        assert_eq!((state.recording(), state.timing()), (Recording::Off, Timing::Marked));
        assert!(state.has_python() && !state.has_native() && state.counts_launches());
        assert!(!state.passes_over_launches() && state.with_counts_launches(false).passes_over_launches());
        let state = state.with_recording(Recording::Marked).with_timing(Timing::On);
        assert_eq!((state.recording(), state.timing()), (Recording::Marked, Timing::On));
        let state = state.with_counts_launches(false).with_frames(Frames { python: true, native: true });
        assert!(!state.passes_over_launches());
        assert_eq!(state.with_recording(Recording::On).to_word(), 0);
        let begun = state.paused_from_begin();
        assert!(begun.recording() == Recording::Off && begun.passes_over_launches());
        assert!(begun.counts_under_way() && !begun.with_recording(Recording::Off).counts_under_way());
        assert!(!begun.with_counts_launches(true).passes_over_launches());
        let one = begun.with_held_calls(true);
        assert!(one.holds_calls() && !one.passes_over_launches() && one.with_held_calls(false) == begun);
        assert!(!HookState::from_word(0).with_held_calls(true).is_plain());
        let with_transfers = state.with_times_transfers(true).with_timing(Timing::Off).in_window(3);
        assert!(
            with_transfers.times_transfers() && !with_transfers.with_times_transfers(false).times_transfers()
        );
        assert_eq!(with_transfers.with_times_transfers(false), state.in_window(3));
        assert!(
            !state.is_untimed_at_either(state) && state.is_untimed_at_either(state.with_timing(Timing::Off))
        );
        let (first, second) = (state.in_window(WINDOW_MAX), state.in_window(7));
        assert_eq!((first.window(), first.timing()), (WINDOW_MAX, Timing::On));
        assert_eq!((first.has_python(), first.counts_launches()), (true, false));
        assert!(!first.is_untimed_at_either(first) && first.is_untimed_at_either(second));
        assert_eq!(first.with_timing(Timing::Marked).window(), 0);
    }

    #[test]
    fn launches_are_whole_in_windows_whatever_is_recorded_outside() {
        let outside = HookState::from_word(0).with_timing(Timing::Off);
        for launches in [Launches::Whole, Launches::Unstacked, Launches::Counted] {
            let state = outside.with_launches(launches);
            assert_eq!((state.launches(), state.records_less()), (launches, launches != Launches::Whole));
            let counts = launches == Launches::Counted;
            for state in [state, state.with_timing(Timing::Marked)] {
                assert_eq!(state.only_counts_launches(), counts);
                assert!(!state.with_recording(Recording::Marked).only_counts_launches());
                assert!(!state.with_recording(Recording::Off).only_counts_launches());
                assert!(!state.with_counts_launches(true).only_counts_launches());
            }
            let inside = state.in_window(2);
            assert_eq!((inside.launches(), inside.records_less(), inside.window()), (launches, false, 2));
            assert!(!inside.only_counts_launches());
            assert_eq!(inside.with_timing(Timing::Off), state);
        }
    }
}
