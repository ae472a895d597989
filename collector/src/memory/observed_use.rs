//! What the driver told the program about the use of a device, beside what is accounted.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObservedUse {
    pub at_ns: u64,
    pub total_bytes: u64,
    pub used_bytes: u64,
    /// What the process held on devices then.
    pub accounted_bytes: u64,
}

impl ObservedUse {
    pub fn new(at_ns: u64, total_bytes: u64, free_bytes: u64, accounted_bytes: u64) -> ObservedUse {
        ObservedUse {
            at_ns,
            total_bytes,
            used_bytes: total_bytes.saturating_sub(free_bytes),
            accounted_bytes,
        }
    }

    /// This one, or the earlier one if more was in use then.
    pub(super) fn or_more(self, earlier: Option<ObservedUse>) -> ObservedUse {
        earlier.filter(|earlier| earlier.used_bytes > self.used_bytes).unwrap_or(self)
    }
}
