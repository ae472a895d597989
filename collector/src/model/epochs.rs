//! Epochs of the device records (one CUPTI session each): which epoch a call belongs to.

use gputrace_wire::clock::mark::EpochBegin;

/// The most epochs that are remembered.
const EPOCHS_MAX: usize = 64;

/// Epochs and the ticks at which they began, in order of ticks.
#[derive(Debug, Default)]
pub(super) struct Epochs(Vec<(u32, u64)>);

impl Epochs {
    /// Adds an epoch. Returns true if it is new and no known epoch begins later.
    pub fn begin(&mut self, begin: &EpochBegin) -> bool {
        if self.0.iter().any(|(epoch, _)| *epoch == begin.epoch) {
            return false;
        }
        if self.0.len() >= EPOCHS_MAX {
            self.0.remove(0);
        }
        let at = self.0.partition_point(|(_, ticks)| *ticks <= begin.ticks);
        self.0.insert(at, (begin.epoch, begin.ticks));
        at + 1 == self.0.len()
    }

    #[inline]
    pub fn at(&self, ticks: u64) -> u32 {
        self.0.iter().rev().find(|(_, begin)| *begin <= ticks).map_or(0, |(epoch, _)| *epoch)
    }

    pub fn latest(&self) -> u32 {
        self.0.last().map_or(0, |(epoch, _)| *epoch)
    }
}
