//! Whoever gets a device's samples at an interval.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::metrics::GpuMetrics;

/// Called with each sample, on the thread that took it, or on the watching one while a call hangs.
pub type Callback = Box<dyn Fn(Box<GpuMetrics>) + Send>;

/// A callback that can be taken away: then it is not called again.
#[derive(Clone)]
pub struct Recipient(Arc<Mutex<Option<Callback>>>);

impl Recipient {
    pub fn new(callback: Callback) -> Recipient {
        Recipient(Arc::new(Mutex::new(Some(callback))))
    }

    pub fn deliver(&self, sample: Box<GpuMetrics>) {
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

/// Which samples somebody gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One each interval.
    All,
    /// Those that do not only repeat the last one.
    Changing,
}

/// A recipient and when its next sample is due.
#[derive(Debug)]
pub struct Subscription {
    pub id: u64,
    pub recipient: Recipient,
    /// After how long a driver call counts as hanging.
    pub answer_limit: Duration,
    interval: Duration,
    /// Which samples it gets.
    wanted: Wanted,
    next: Instant,
    /// When a hang was last reported.
    reported: Option<Instant>,
}

impl Subscription {
    /// The first sample is due at once.
    pub fn new(
        id: u64,
        interval: Duration,
        wanted: Wanted,
        answer_limit: Duration,
        recipient: Recipient,
    ) -> Subscription {
        epoch();
        let interval = interval.max(INTERVAL_MIN);
        Subscription { id, recipient, answer_limit, interval, wanted, next: Instant::now(), reported: None }
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

    /// Whether a sample is due; if so the next one is due at the next multiple of the interval, or at the
    /// first one after `repeats_until` where samples that repeat this one are not wanted. Counts the samples
    /// that fell out because this one is late.
    pub fn take_due(&mut self, now: Instant, repeats_until: Option<Instant>, missed: &mut u64) -> bool {
        if self.next > now {
            return false;
        }
        let interval = self.interval.as_nanos();
        *missed += (now.duration_since(self.next).as_nanos() / interval) as u64;
        let repeats_until = repeats_until.filter(|_| self.wanted == Wanted::Changing);
        let after = repeats_until.map_or(now, |until| until.max(now));
        let into = after.duration_since(epoch()).as_nanos() % interval;
        self.next = after + Duration::from_nanos((interval - into) as u64);
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
        let mut subscription = Subscription::new(1, interval, Wanted::All, interval, recipient);
        let mut missed = 0;
        assert!(subscription.take_due(subscription.next(), None, &mut missed), "the first at once");
        let second = subscription.next();
        assert_eq!(second.duration_since(epoch()).as_nanos() % interval.as_nanos(), 0);
        assert!(!subscription.take_due(second - Duration::from_millis(1), None, &mut missed));
        assert!(subscription.take_due(second + Duration::from_millis(50), None, &mut missed));
        assert_eq!((missed, subscription.next()), (0, second + interval));
        assert!(subscription.take_due(second + Duration::from_millis(320), None, &mut missed));
        assert_eq!((missed, subscription.next()), (2, second + 4 * interval));
    }

    #[test]
    fn samples_that_repeat_the_last_one_are_left_out_where_they_are_not_wanted() {
        let (interval, mut missed) = (Duration::from_millis(100), 0);
        let mut next_of = |wanted, repeats: u64| {
            let recipient = Recipient::new(Box::new(|_| {}));
            let mut subscription = Subscription::new(1, interval, wanted, interval, recipient);
            let first = subscription.next();
            let until = first + Duration::from_millis(repeats);
            assert!(subscription.take_due(first, Some(until), &mut missed));
            (first, until, subscription.next())
        };
        let (first, _, next) = next_of(Wanted::All, 450);
        assert!(next <= first + interval);
        let (_, until, next) = next_of(Wanted::Changing, 450);
        assert!(next > until && next <= until + interval);
        assert_eq!(next.duration_since(epoch()).as_nanos() % interval.as_nanos(), 0);
        let (first, _, next) = next_of(Wanted::Changing, 0);
        assert!(next <= first + interval, "the value changes all the time");
        assert_eq!(missed, 0);
    }
}
