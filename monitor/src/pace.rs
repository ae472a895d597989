//! A value that is read less often than samples are taken, with its age.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct Paced<T> {
    every: Option<Duration>,
    last: Option<(Instant, T)>,
    /// When the value is to be read again; `None`: at once.
    due: Option<Instant>,
}

impl<T> Paced<T> {
    /// A value that is read at most once in that time; `None`: never.
    pub fn new(every: Option<Duration>) -> Paced<T> {
        Paced { every, last: None, due: None }
    }

    pub fn is_due(&self, now: Instant) -> bool {
        self.every.is_some() && self.due.is_none_or(|due| now >= due)
    }

    pub fn set(&mut self, value: T) {
        let now = Instant::now();
        // A tick may come a little early; a tenth earlier is better than one sample later.
        self.due = self.every.and_then(|every| now.checked_add(every - every / 10));
        self.last = Some((now, value));
    }

    /// The value and how old it is.
    pub fn get(&self, now: Instant) -> Option<(&T, Duration)> {
        self.last.as_ref().map(|(at, value)| (value, now.saturating_duration_since(*at)))
    }

    /// The value is to be read again before its time; until then the last one holds.
    pub fn hurry(&mut self) {
        self.due = None;
    }

    pub fn clear(&mut self) {
        self.last = None;
        self.due = None;
    }
}

/// A value that is read often while it changes and for some readings afterwards, and seldom otherwise.
#[derive(Debug)]
pub struct Adaptive<T> {
    often: Duration,
    seldom: Duration,
    /// How many readings in a row had the same value.
    unchanged: u32,
    paced: Paced<T>,
}

/// So many readings without a change, and a value is read seldom.
const STEADY_AFTER: u32 = 5;

impl<T: PartialEq> Adaptive<T> {
    pub fn new(often: Duration, seldom: Duration) -> Adaptive<T> {
        let seldom = seldom.max(often);
        Adaptive { often, seldom, unchanged: 0, paced: Paced::new(Some(often)) }
    }

    pub fn is_due(&self, now: Instant) -> bool {
        self.paced.is_due(now)
    }

    pub fn set(&mut self, value: T) {
        let is_same = self.paced.last.as_ref().is_some_and(|(_, last)| *last == value);
        self.unchanged = if is_same { self.unchanged.saturating_add(1) } else { 0 };
        self.paced.every = Some(if self.unchanged < STEADY_AFTER { self.often } else { self.seldom });
        self.paced.set(value);
    }

    pub fn get(&self, now: Instant) -> Option<(&T, Duration)> {
        self.paced.get(now)
    }

    /// Something else says that the value may change: it is read often from now on.
    pub fn hurry(&mut self) {
        self.unchanged = 0;
        self.paced.hurry();
    }

    pub fn clear(&mut self) {
        self.unchanged = 0;
        self.paced.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_due_at_first_and_again_after_its_time() {
        let mut value = Paced::new(Some(Duration::from_secs(10)));
        let now = Instant::now();
        assert!(value.is_due(now));
        assert!(value.get(now).is_none());
        value.set(7);
        assert!(!value.is_due(now + Duration::from_secs(5)));
        assert!(value.is_due(now + Duration::from_secs(11)));
        let (seven, age) = value.get(now + Duration::from_secs(5)).unwrap();
        assert_eq!(*seven, 7);
        assert!(age <= Duration::from_secs(5), "{age:?}");
        assert!(!Paced::<u32>::new(None).is_due(now));
    }

    #[test]
    fn hurried_value_is_due_and_keeps_its_last_reading() {
        let mut value = Paced::new(Some(Duration::from_secs(10)));
        value.set(7);
        value.hurry();
        let now = Instant::now();
        assert!(value.is_due(now));
        assert_eq!(value.get(now).map(|(value, _)| *value), Some(7));
        value.clear();
        assert!(value.is_due(now) && value.get(now).is_none());
    }

    /// Whether the value is due so long after it was set.
    fn is_due_after<T: PartialEq>(value: &Adaptive<T>, seconds: u64) -> bool {
        value.is_due(Instant::now() + Duration::from_secs(seconds))
    }

    #[test]
    fn changing_value_is_read_often_and_a_steady_one_seldom_with_its_age() {
        let mut value = Adaptive::new(Duration::from_secs(100), Duration::from_secs(500));
        assert!(is_due_after(&value, 0), "at first");
        for number in 0..20 {
            value.set(number);
            assert!(!is_due_after(&value, 80) && is_due_after(&value, 100), "{number}");
        }
        for reading in 1..STEADY_AFTER {
            value.set(19);
            assert!(is_due_after(&value, 100), "reading {reading} after the last change");
        }
        value.set(19);
        assert!(!is_due_after(&value, 400) && is_due_after(&value, 500));
        let later = Instant::now() + Duration::from_secs(400);
        let (last, age) = value.get(later).unwrap();
        assert_eq!((*last, age.as_secs()), (19, 400));
        value.set(20);
        assert!(is_due_after(&value, 100), "it has changed");
        assert!(!is_due_after(&value, 80));
    }

    #[test]
    fn hurried_and_cleared_values_are_read_often_again() {
        let mut value = Adaptive::new(Duration::from_secs(100), Duration::from_secs(500));
        let repeat = |value: &mut Adaptive<u32>| {
            (0..=STEADY_AFTER).for_each(|_| value.set(7));
            assert!(!is_due_after(value, 400));
        };
        repeat(&mut value);
        value.hurry();
        assert!(is_due_after(&value, 0));
        value.set(7);
        assert!(is_due_after(&value, 100));
        repeat(&mut value);
        value.clear();
        assert!(is_due_after(&value, 0) && value.get(Instant::now()).is_none());
    }

    #[test]
    fn value_that_is_always_read_seldom_is_never_read_more_often() {
        let mut value = Adaptive::new(Duration::from_secs(500), Duration::from_secs(100));
        (0..=STEADY_AFTER).for_each(|_| value.set(7));
        assert!(!is_due_after(&value, 400) && is_due_after(&value, 500));
    }
}
