//! The windows in which operations were launched, and how many of these have device times.

use rustc_hash::FxHashMap;

/// Numbers of windows of a process are below it ([`gputrace_wire::call::Call::window`] has 23 bits for them).
const NUMBERS_MAX: u32 = 1 << 23;
/// Processes whose windows are counted.
const PROCESSES_MAX: usize = 1 << 12;

/// In windows that were scheduled and in those that something new triggered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WindowCounts {
    /// Windows in which something was launched.
    pub scheduled: u64,
    pub triggered: u64,
    /// Operations of calls in windows, and those of them without device times: the loss.
    pub operations: u64,
    pub lost: u64,
}

#[derive(Clone, Debug, Default)]
pub struct SampledWindows {
    /// A bit a window, by process.
    seen: FxHashMap<u32, Vec<u64>>,
    pub counts: WindowCounts,
}

impl SampledWindows {
    #[inline]
    pub fn operation(&mut self, process: u32, number: u32, is_triggered: bool, is_timed: bool) {
        self.counts.operations += 1;
        self.counts.lost += u64::from(!is_timed);
        if number >= NUMBERS_MAX || self.seen.len() >= PROCESSES_MAX && !self.seen.contains_key(&process) {
            return;
        }
        let seen = self.seen.entry(process).or_default();
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if word >= seen.len() {
            seen.resize(word + 1, 0);
        }
        if let Some(word) = seen.get_mut(word).filter(|word| **word & bit == 0) {
            *word |= bit;
            let of_kind = if is_triggered { &mut self.counts.triggered } else { &mut self.counts.scheduled };
            *of_kind += 1;
        }
    }
}
