//! Whoever gets a device's samples at an interval.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::metrics::GpuMetrics;

/// Called with each sample, on the thread that took it, or on the watching one while a call hangs.
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
    /// After how long a driver call counts as hanging.
    pub answer_limit: Duration,
    interval: Duration,
    next: Instant,
    /// When a hang was last reported.
    reported: Option<Instant>,
}

impl Subscription {
    /// The first sample is due at once.
    pub fn new(id: u64, interval: Duration, answer_limit: Duration, recipient: Recipient) -> Subscription {
        epoch();
        let interval = interval.max(INTERVAL_MIN);
        Subscription { id, recipient, answer_limit, interval, next: Instant::now(), reported: None }
    }

    /// Whether a hang is to be reported again.
    pub fn takes_report(&mut self, now: Instant) -> bool {
        let is_due = self.reported.is_none_or(|at| now.duration_since(at) >= self.answer_limit / 2);
        if is_due {
            self.reported = Some(now);
        }
        is_due
    }

    pub fn next(&self) -> Instant {
        self.next
    }

    /// Whether a sample is due; if so the next one is due at the next multiple of the interval. Counts the
    /// samples that fell out because this one is late.
    pub fn take_due(&mut self, now: Instant, missed: &mut u64) -> bool {
        if self.next > now {
            return false;
        }
        let interval = self.interval.as_nanos();
        *missed += (now.duration_since(self.next).as_nanos() / interval) as u64;
        let into = now.duration_since(epoch()).as_nanos() % interval;
        self.next = now + Duration::from_nanos((interval - into) as u64);
        true
    }
}

/// The intervals of all devices count from here, so that their samples are of the same moments.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// A shorter interval would leave the thread no pause.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_due_at_multiples_of_the_interval_and_late_ones_are_counted() {
        let recipient = Recipient::new(Box::new(|_| {}));
        let interval = Duration::from_millis(100);
        let mut subscription = Subscription::new(1, interval, interval, recipient);
        let mut missed = 0;
        assert!(subscription.take_due(subscription.next(), &mut missed), "the first at once");
        let second = subscription.next();
        assert_eq!(second.duration_since(epoch()).as_nanos() % interval.as_nanos(), 0);
        assert!(!subscription.take_due(second - Duration::from_millis(1), &mut missed));
        assert!(subscription.take_due(second + Duration::from_millis(50), &mut missed));
        assert_eq!((missed, subscription.next()), (0, second + interval));
        assert!(subscription.take_due(second + Duration::from_millis(320), &mut missed));
        assert_eq!((missed, subscription.next()), (2, second + 4 * interval));
    }
}
