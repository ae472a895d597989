//! Which calls the join has let go while their records may still come, one bit each for the latest ids.

use super::key::JoinKey;

/// Correlation ids with a bit of their own: some tens of seconds of the densest launching, in 2 MiB that are
/// allocated for the first such call.
const IDS: u32 = 1 << 24;

#[derive(Debug, Default)]
pub struct NotedIds {
    epoch: u32,
    /// The newest id that was noted; the bits cover the `IDS` ids up to it.
    newest: u32,
    bits: Vec<u64>,
}

impl NotedIds {
    fn position(correlation: u32) -> (usize, u64) {
        let id = correlation % IDS;
        (id as usize / 64, 1 << (id % 64))
    }

    fn set(&mut self, correlation: u32, on: bool) {
        let (index, bit) = Self::position(correlation);
        if let Some(word) = self.bits.get_mut(index) {
            *word = if on { *word | bit } else { *word & !bit };
        }
    }

    /// Notes a call.
    pub fn note(&mut self, key: JoinKey) {
        if self.bits.is_empty() || self.epoch != key.epoch {
            self.bits.clear();
            self.bits.resize(IDS as usize / 64, 0);
            (self.epoch, self.newest) = (key.epoch, key.correlation);
        }
        let ahead = key.correlation.wrapping_sub(self.newest);
        if ahead.cast_signed() > 0 {
            // Clears the bits of ids that are now out of range.
            if ahead >= IDS {
                self.bits.fill(0);
            } else {
                (1..ahead).for_each(|step| self.set(self.newest.wrapping_add(step), false));
            }
            self.newest = key.correlation;
        }
        self.set(key.correlation, true);
    }

    /// Whether the record's call was noted.
    pub fn has(&self, key: JoinKey) -> bool {
        let (index, bit) = Self::position(key.correlation);
        let behind = self.newest.wrapping_sub(key.correlation);
        self.epoch == key.epoch && behind < IDS && self.bits.get(index).is_some_and(|word| word & bit != 0)
    }

    /// The same; the note is removed.
    pub fn take(&mut self, key: JoinKey) -> bool {
        let is_noted = self.has(key);
        if is_noted {
            self.set(key.correlation, false);
        }
        is_noted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(epoch: u32, correlation: u32) -> JoinKey {
        JoinKey { epoch, correlation }
    }

    #[test]
    fn calls_are_remembered_once_and_for_a_while() {
        let mut noted = NotedIds::default();
        assert!(!noted.take(key(0, 0)));
        for id in [5, 7, 6] {
            noted.note(key(1, id));
        }
        assert!(!noted.take(key(1, 8)) && !noted.take(key(2, 7)));
        assert!(noted.has(key(1, 7)) && noted.take(key(1, 7)) && !noted.has(key(1, 7)));
        noted.note(key(1, 5 + IDS));
        assert!(!noted.take(key(1, 5)), "too long ago");
        assert!(noted.take(key(1, 6)), "just not");
        assert!(noted.take(key(1, 5 + IDS)));
        noted.note(key(3, u32::MAX));
        noted.note(key(3, 2));
        assert!(noted.take(key(3, u32::MAX)) && noted.take(key(3, 2)), "ids wrap round");
        noted.note(key(4, 1));
        assert!(!noted.take(key(3, 1)) && noted.take(key(4, 1)), "another epoch");
    }
}
