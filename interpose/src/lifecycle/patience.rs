//! How long a program that is ending waits for us: while there is progress, up to a limit.

use gputrace_producer::clock;

/// The longest wait without progress. A program that has ended should not hang because its collector was
/// stopped, or because the call that a signal handler interrupted holds the driver's locks.
const STILL_NS: u64 = 2_000_000_000;
/// The same for a wait that probably sees no progress at all.
const BRIEFLY_STILL_NS: u64 = 200_000_000;
/// The longest wait even with progress.
const WHOLE_NS: u64 = 20_000_000_000;

#[derive(Debug)]
pub struct Patience {
    began_ns: u64,
    moved_ns: u64,
    sign: u64,
    still_ns: u64,
}

impl Patience {
    pub fn new() -> Patience {
        Patience::of(STILL_NS)
    }

    /// For a wait that probably sees no progress.
    pub fn brief() -> Patience {
        Patience::of(BRIEFLY_STILL_NS)
    }

    fn of(still_ns: u64) -> Patience {
        let now_ns = clock::monotonic_ns();
        Patience { began_ns: now_ns, moved_ns: now_ns, sign: 0, still_ns }
    }

    /// Whether to continue waiting. `sign` is a number that changes while there is progress.
    pub fn goes_on(&mut self, sign: u64) -> bool {
        self.goes_on_at(clock::monotonic_ns(), sign)
    }

    fn goes_on_at(&mut self, now_ns: u64, sign: u64) -> bool {
        if sign != self.sign {
            self.sign = sign;
            self.moved_ns = now_ns;
        }
        now_ns.saturating_sub(self.moved_ns) < self.still_ns
            && now_ns.saturating_sub(self.began_ns) < WHOLE_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_lasts_while_there_is_progress() {
        let start_ns = 1_000;
        let mut patience = Patience { began_ns: start_ns, moved_ns: start_ns, sign: 0, still_ns: STILL_NS };
        assert!(patience.goes_on_at(start_ns + STILL_NS - 1, 0));
        assert!(patience.goes_on_at(start_ns + STILL_NS - 1, 1), "it moved");
        assert!(patience.goes_on_at(start_ns + 2 * STILL_NS - 2, 1));
        assert!(!patience.goes_on_at(start_ns + 2 * STILL_NS, 1), "it stands still");
        assert!(patience.goes_on_at(start_ns + 2 * STILL_NS, 2));
        assert!(!patience.goes_on_at(start_ns + WHOLE_NS, 3), "that is too long");
    }
}
