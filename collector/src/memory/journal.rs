//! What changed in a process's memory, step by step in the order of time, for outputs that draw it.

/// One change, on the process's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalStep {
    /// What the site with that index holds.
    Live { at_ns: u64, site: usize, bytes: u64 },
    /// What the pool with that number, counted from 1, has in use.
    PoolUsed { at_ns: u64, pool: u32, bytes: u64 },
    /// What it has taken from the device.
    PoolReserved { at_ns: u64, pool: u32, bytes: u64 },
}

/// The steps since they were last taken; nothing is kept unless somebody takes them.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryJournal {
    is_kept: bool,
    steps: Vec<JournalStep>,
}

impl MemoryJournal {
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    #[inline]
    pub fn add(&mut self, step: impl FnOnce() -> JournalStep) {
        if self.is_kept {
            self.steps.push(step());
        }
    }

    pub fn take(&mut self) -> Vec<JournalStep> {
        std::mem::take(&mut self.steps)
    }
}
