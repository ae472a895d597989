//! Whoever gets a device's samples at an interval.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::metrics::GpuMetrics;

/// Called with each sample, on the device's thread, or on the watching one while the device's hangs.
pub type Callback = Box<dyn Fn(GpuMetrics) + Send>;

/// A callback that can be taken away: then it is not called again.
#[derive(Clone)]
pub struct Recipient(Arc<Mutex<Option<Callback>>>);

impl Recipient {
    pub fn new(callback: Callback) -> Recipient {
        Recipient(Arc::new(Mutex::new(Some(callback))))
    }

    pub fn deliver(&self, sample: GpuMetrics) {
        if let Some(callback) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            callback(sample);
        }
    }

    /// Waits for a call that is under way.
    pub fn remove(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Recipient")
    }
}

/// A recipient and when its next sample is due.
#[derive(Debug)]
pub struct Subscription {
    pub id: u64,
    pub recipient: Recipient,
    interval: Duration,
    next: Instant,
}

impl Subscription {
    /// The first sample is due at once.
    pub fn new(id: u64, interval: Duration, recipient: Recipient) -> Subscription {
        Subscription { id, recipient, interval: interval.max(INTERVAL_MIN), next: Instant::now() }
    }

    pub fn next(&self) -> Instant {
        self.next
    }

    /// Whether a sample is due; if so the next one is due an interval later. Counts the samples that fell out
    /// because this one is late.
    pub fn take_due(&mut self, now: Instant, missed: &mut u64) -> bool {
        if self.next > now {
            return false;
        }
        self.next += self.interval;
        if self.next <= now {
            let behind = now.duration_since(self.next).as_nanos() / self.interval.as_nanos();
            *missed += behind as u64 + 1;
            self.next = now + self.interval;
        }
        true
    }
}

/// A shorter interval would leave the thread no pause.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_subscription_counts_what_it_missed() {
        let recipient = Recipient::new(Box::new(|_| {}));
        let mut subscription = Subscription::new(1, Duration::from_millis(100), recipient);
        let (begin, mut missed) = (subscription.next(), 0);
        assert!(subscription.take_due(begin, &mut missed));
        assert!(!subscription.take_due(begin + Duration::from_millis(99), &mut missed));
        assert!(subscription.take_due(begin + Duration::from_millis(150), &mut missed));
        assert_eq!(missed, 0);
        assert!(subscription.take_due(begin + Duration::from_millis(420), &mut missed));
        assert_eq!(missed, 2);
        assert_eq!(subscription.next(), begin + Duration::from_millis(520));
    }
}
