//! The sums of one kind of memory in a process.

use super::held_memory::HeldMemory;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KindMemory {
    pub allocated: HeldMemory,
    pub freed: HeldMemory,
    pub live: HeldMemory,
    pub peak_bytes: u64,
    /// When `peak_bytes` were first in use.
    pub peak_ns: u64,
}

impl KindMemory {
    pub(super) fn add(&mut self, bytes: u64, at_ns: u64) {
        let one = HeldMemory::one(bytes);
        self.allocated.add(one);
        self.live.add(one);
        if self.live.bytes > self.peak_bytes {
            (self.peak_bytes, self.peak_ns) = (self.live.bytes, at_ns);
        }
    }

    pub(super) fn free(&mut self, bytes: u64) {
        let one = HeldMemory::one(bytes);
        self.freed.add(one);
        self.live.remove(one);
    }
}
