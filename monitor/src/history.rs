//! The last samples of a device, in a ring of fixed size.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::metrics::GpuMetrics;

#[derive(Debug)]
pub struct History {
    samples: VecDeque<GpuMetrics>,
    capacity: usize,
}

impl History {
    pub fn new(capacity: usize) -> History {
        History { samples: VecDeque::new(), capacity }
    }

    /// Keeps a sample; the oldest one is dropped if the ring is full.
    pub fn push(&mut self, sample: GpuMetrics) {
        if self.capacity == 0 {
            return;
        }
        if self.samples.len() == self.capacity {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// The samples of that long until now, oldest first.
    pub fn last(&self, duration: Duration) -> Vec<GpuMetrics> {
        self.map(duration, GpuMetrics::clone)
    }

    /// One value of each of them.
    pub fn map<T>(&self, duration: Duration, value: impl Fn(&GpuMetrics) -> T) -> Vec<T> {
        let begin = Instant::now().checked_sub(duration);
        let is_in = |sample: &&GpuMetrics| begin.is_none_or(|begin| sample.timestamp >= begin);
        self.samples.iter().filter(is_in).map(value).collect()
    }

    pub fn latest(&self) -> Option<&GpuMetrics> {
        self.samples.back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(1_000_000_000);

    fn filled(capacity: usize, samples: u32) -> Vec<u32> {
        let mut history = History::new(capacity);
        (0..samples).for_each(|number| history.push(GpuMetrics::empty(number)));
        history.last(LONG).iter().map(|sample| sample.device_index).collect()
    }

    #[test]
    fn full_ring_drops_its_oldest_sample() {
        assert_eq!(filled(3, 2), [0, 1]);
        assert_eq!(filled(3, 3), [0, 1, 2]);
        assert_eq!(filled(3, 7), [4, 5, 6]);
        assert!(filled(0, 7).is_empty());
    }

    #[test]
    fn only_samples_of_the_duration_are_given() {
        let mut history = History::new(10);
        let now = Instant::now();
        for seconds_ago in [30, 20, 1] {
            let timestamp = now - Duration::from_secs(seconds_ago);
            history.push(GpuMetrics { timestamp, ..GpuMetrics::empty(seconds_ago as u32) });
        }
        let last: Vec<u32> = history.last(Duration::from_secs(25)).iter().map(|s| s.device_index).collect();
        assert_eq!(last, [20, 1]);
        assert!(history.last(Duration::ZERO).is_empty());
    }
}
