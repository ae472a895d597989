//! Copies by direction and kinds of memory, and fills: how often, how much, how long.

use std::collections::BTreeMap;

use crate::aggregate::Durations;
use crate::model::operation::{Direction, PAGEABLE, memory_name};

/// Where the bytes come from and where they go, by the names of [`memory_name`].
pub type Memories = [&'static str; 2];

#[derive(Clone, Debug, Default)]
pub struct Moved {
    pub calls: u64,
    pub bytes: u64,
    /// Of the calls with device times, and the bytes of those.
    pub durations: Durations,
    pub timed_bytes: u64,
}

impl Moved {
    #[inline]
    pub(super) fn add(&mut self, bytes: u64, duration_ns: Option<u64>) {
        self.calls = self.calls.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(duration_ns) = duration_ns {
            self.durations.add(duration_ns);
            self.timed_bytes = self.timed_bytes.saturating_add(bytes);
        }
    }

    fn merge(&mut self, other: &Moved) {
        self.calls = self.calls.saturating_add(other.calls);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.durations.merge(&other.durations);
        self.timed_bytes = self.timed_bytes.saturating_add(other.timed_bytes);
    }

    /// Bytes a second, over the calls with times and in units of 10^6; 0 if they took no time.
    pub fn bandwidth_mbps(&self) -> f64 {
        match self.durations.total_ns() {
            0 => 0.0,
            total_ns => self.timed_bytes as f64 * 1e3 / total_ns as f64,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Transfers {
    pub copies: BTreeMap<Direction, Moved>,
    /// The same by kinds of memory.
    pub by_memory: BTreeMap<(Direction, Memories), Moved>,
    pub fills: Moved,
}

impl Transfers {
    #[inline]
    pub fn copy(&mut self, direction: Direction, bytes: u64, memories: [u8; 2], duration_ns: Option<u64>) {
        self.copies.entry(direction).or_default().add(bytes, duration_ns);
        let memories = memories.map(memory_name);
        self.by_memory.entry((direction, memories)).or_default().add(bytes, duration_ns);
    }

    /// Copies of the direction that read or write pageable memory of the host.
    pub fn pageable(&self, direction: Direction) -> Moved {
        let mut sum = Moved::default();
        for ((of, memories), moved) in &self.by_memory {
            if *of == direction && memories.contains(&PAGEABLE) {
                sum.merge(moved);
            }
        }
        sum
    }

    #[inline]
    pub fn fill(&mut self, bytes: u64, duration_ns: Option<u64>) {
        self.fills.add(bytes, duration_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_is_over_what_was_timed() {
        let mut transfers = Transfers::default();
        transfers.copy(Direction::CpuToGpu, 2_000_000, [1, 3], Some(1_000_000));
        transfers.copy(Direction::CpuToGpu, 5_000_000, [2, 3], None);
        transfers.copy(Direction::GpuToCpu, 10, [3, 2], Some(0));
        let up = &transfers.copies[&Direction::CpuToGpu];
        assert_eq!((up.calls, up.bytes, up.timed_bytes), (2, 7_000_000, 2_000_000));
        assert_eq!(up.bandwidth_mbps(), 2_000.0);
        assert_eq!(transfers.copies[&Direction::GpuToCpu].bandwidth_mbps(), 0.0);
        assert_eq!(transfers.pageable(Direction::CpuToGpu).bytes, 2_000_000);
        assert_eq!(transfers.pageable(Direction::GpuToCpu).calls, 0);
        let kinds: Vec<Memories> = transfers.by_memory.keys().map(|(_, memories)| *memories).collect();
        assert_eq!(kinds, [["pageable", "device"], ["pinned", "device"], ["device", "pinned"]]);
    }
}
