//! A number of allocations and their bytes.

/// Allocations and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeldMemory {
    pub count: u64,
    pub bytes: u64,
}

impl HeldMemory {
    pub fn add(&mut self, other: HeldMemory) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    pub(super) fn one(bytes: u64) -> HeldMemory {
        HeldMemory { count: 1, bytes }
    }

    pub(super) fn remove(&mut self, other: HeldMemory) {
        self.count = self.count.saturating_sub(other.count);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}
