//! The wait between attempts: longer each time, and random, so that senders do not retry at the same moment.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Backoff {
    attempts: u32,
    /// Seeded by the system: many processes that lost the same back end must not all return at once.
    random: u64,
}

impl Backoff {
    pub fn new() -> Backoff {
        Backoff { attempts: 0, random: RandomState::new().build_hasher().finish() | 1 }
    }

    /// Whether there was no wait since the last reset.
    pub fn is_fresh(&self) -> bool {
        self.attempts == 0
    }

    pub fn reset(&mut self) {
        self.attempts = 0;
    }

    /// The next wait, between half of its full length and all of it.
    pub fn next(&mut self) -> Duration {
        let full = FIRST.saturating_mul(1 << self.attempts.min(10)).min(LONGEST);
        self.attempts = self.attempts.saturating_add(1);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        full / 2 + (full / 2).mul_f64((self.random >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_differ() {
        let (mut one, mut other) = (Backoff::new(), Backoff::new());
        let waits: Vec<_> = (0..40).map(|_| one.next()).collect();
        for (wait, exponent) in waits.iter().zip(0..) {
            let full = FIRST.saturating_mul(1 << u32::min(exponent, 10)).min(LONGEST);
            assert!((full / 2..=full).contains(wait), "{wait:?} of {full:?}");
        }
        let others: Vec<_> = (0..40).map(|_| other.next()).collect();
        assert_ne!(waits, others);
        one.reset();
        assert!(one.next() <= FIRST);
    }
}
