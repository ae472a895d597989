//! The window's samples of devices. They have no process, and evict no events: a program that hangs is
//! sampled for as long as it does, and its last events must stay.

use std::collections::VecDeque;

use crate::flight_recorder::block::Block;

/// The most bytes of samples: hours of one device at ten samples a second.
const BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Default)]
pub struct KeptSamples {
    batches: VecDeque<KeptBatch>,
    bytes: usize,
}

#[derive(Debug)]
struct KeptBatch {
    last_ns: u64,
    blocks: Vec<Block>,
}

impl KeptBatch {
    fn bytes(&self) -> usize {
        self.blocks.iter().map(Block::bytes).sum::<usize>() + size_of::<KeptBatch>()
    }
}

impl KeptSamples {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, last_ns: u64, blocks: Vec<Block>) {
        let batch = KeptBatch { last_ns, blocks };
        self.bytes += batch.bytes();
        self.batches.push_back(batch);
    }

    /// Evicts what is older than `from_ns`. If that leaves too much, also the oldest samples since the last
    /// event, at `newest_ns`, and after these the oldest of all.
    pub fn evict(&mut self, from_ns: u64, newest_ns: u64) {
        while self.batches.front().is_some_and(|batch| batch.last_ns < from_ns) {
            self.remove(0);
        }
        while self.bytes > BYTES_MAX && self.batches.len() > 1 {
            let after = self.batches.partition_point(|batch| batch.last_ns <= newest_ns);
            self.remove(if after + 1 < self.batches.len() { after } else { 0 });
        }
    }

    fn remove(&mut self, at: usize) {
        if let Some(batch) = self.batches.remove(at) {
            self.bytes -= batch.bytes();
        }
    }

    /// The samples from that time on.
    pub fn blocks(&self, from_ns: u64) -> impl Iterator<Item = &Block> {
        let young = self.batches.iter().skip_while(move |batch| batch.last_ns < from_ns);
        young.flat_map(|batch| &batch.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace_file::encode::Encoded;

    fn block(bytes: usize) -> Vec<Block> {
        let stored = vec![0; bytes];
        vec![Block::new(&Encoded {
            kind: 12,
            encoding: 0,
            process: 0,
            ring: 0,
            raw_bytes: bytes as u32,
            stored: &stored,
        })]
    }

    fn times(samples: &KeptSamples) -> Vec<u64> {
        samples.batches.iter().map(|batch| batch.last_ns).collect()
    }

    #[test]
    fn samples_outside_the_window_are_evicted() {
        let mut samples = KeptSamples::default();
        (1..=5).for_each(|time| samples.push(time * 10, block(100)));
        samples.evict(25, 40);
        assert_eq!(times(&samples), [30, 40, 50]);
        assert_eq!(samples.blocks(35).count(), 2);
        samples.evict(1000, 1000);
        assert_eq!((times(&samples), samples.bytes()), (vec![], 0));
    }

    #[test]
    fn samples_of_a_hanging_program_are_bounded_and_those_beside_its_events_stay() {
        let mut samples = KeptSamples::default();
        for time in 0..100 {
            samples.push(time, block(BYTES_MAX / 10));
            samples.evict(0, 3);
        }
        let kept = times(&samples);
        assert_eq!((&kept[..4], kept.last()), (&[0, 1, 2, 3][..], Some(&99)));
        assert!(samples.bytes() <= BYTES_MAX, "{} bytes", samples.bytes());
    }
}
