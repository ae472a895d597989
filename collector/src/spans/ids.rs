//! Ids of traces and spans, computed from what they identify.
//!
//! The same trace exported twice has the same ids, so a back end gets the same spans again and no copies. And
//! a span's id is known before the span exists.

use crate::batch::{ProcessBegin, SessionBegin};

/// What a span id identifies; ids of two kinds are equal by chance only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Of {
    Process = 1,
    Range = 2,
    Call = 3,
    Operation = 4,
}

/// From which the ids of a session are computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionSeed(u64);

/// From which the ids of a process's spans are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessSeed(u64);

impl SessionSeed {
    pub fn new(session: &SessionBegin) -> SessionSeed {
        let command = session
            .command
            .iter()
            .flat_map(|word| word.bytes())
            .fold(0, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
        SessionSeed(mix(mix(mix(command, session.realtime_ns), session.monotonic_ns), 0))
    }

    /// The trace of processes without a TRACEPARENT.
    pub fn trace(self) -> u128 {
        let high = u128::from(mix(self.0, 1));
        (high << 64 | u128::from(mix(self.0, 2))).max(1)
    }

    /// The span of the session's command.
    pub fn run(self) -> u64 {
        mix(self.0, 3).max(1)
    }

    pub fn process(self, process: &ProcessBegin) -> ProcessSeed {
        let pid = u64::from(process.pid) << 32 | u64::from(process.generation);
        ProcessSeed(mix(mix(self.0, pid), process.start_monotonic_ns))
    }
}

impl ProcessSeed {
    /// A span's id, never 0.
    pub fn span(self, of: Of, first: u64, second: u64) -> u64 {
        mix(mix(mix(self.0, of as u64), first), second).max(1)
    }
}

/// Mixes two words into one that depends on every bit of both (the finaliser of splitmix64).
fn mix(seed: u64, word: u64) -> u64 {
    let mut mixed = (seed ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_reproducible_and_unique() {
        let session = SessionBegin { realtime_ns: 7, ..SessionBegin::default() };
        let seed = SessionSeed::new(&session);
        assert_eq!(seed.trace(), SessionSeed::new(&session.clone()).trace());
        assert_ne!(seed.trace(), SessionSeed::new(&SessionBegin::default()).trace());
        let process = seed.process(&ProcessBegin { pid: 4711, ..ProcessBegin::default() });
        let mut ids = HashSet::new();
        for of in [Of::Process, Of::Range, Of::Call, Of::Operation] {
            for first in 0..1000 {
                for second in 0..4 {
                    assert!(ids.insert(process.span(of, first, second)));
                }
            }
        }
        assert!(!ids.contains(&0));
    }
}
