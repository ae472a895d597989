//! A value that is read less often than samples are taken, with its age.

use std::time::{Duration, Instant};

/// How much earlier than its interval says a value may be read at most: by itself, and with others.
const EARLY_MAX: Duration = Duration::from_millis(50);
const LEAD_MAX: Duration = Duration::from_millis(200);
/// When a value is due that is never read.
const FAR: Duration = Duration::from_secs(3600);

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

    /// Whether the value is due soon, so that a reading of others takes it along: readings of the same
    /// interval then come together, and the samples between them read nothing.
    pub fn is_nearly_due(&self, now: Instant) -> bool {
        let lead = self.every.map_or(Duration::ZERO, |every| (every * 2 / 5).min(LEAD_MAX));
        self.is_due(now + lead)
    }

    /// When the value is due.
    pub fn due(&self, now: Instant) -> Instant {
        if self.every.is_none() { now + FAR } else { self.due.unwrap_or(now) }
    }

    /// `now`: when its reading began.
    pub fn set(&mut self, value: T, now: Instant) {
        // A tick may come a little early; a tenth earlier is better than one sample later.
        let early = |every: Duration| (every / 10).min(EARLY_MAX);
        self.due = self.every.and_then(|every| now.checked_add(every - early(every)));
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

    pub fn is_nearly_due(&self, now: Instant) -> bool {
        self.paced.is_nearly_due(now)
    }

    pub fn due(&self, now: Instant) -> Instant {
        self.paced.due(now)
    }

    pub fn set(&mut self, value: T, now: Instant) {
        let is_same = self.paced.last.as_ref().is_some_and(|(_, last)| *last == value);
        self.unchanged = if is_same { self.unchanged.saturating_add(1) } else { 0 };
        self.paced.every = Some(if self.unchanged < STEADY_AFTER { self.often } else { self.seldom });
        self.paced.set(value, now);
    }

    pub fn get(&self, now: Instant) -> Option<(&T, Duration)> {
        self.paced.get(now)
    }

    /// Something else says that the value may change: it is read often from now on, and at once.
    pub fn hurry(&mut self) {
        self.unchanged = 0;
        self.paced.hurry();
    }

    /// The same, and not sooner than often after its last reading.
    pub fn stir(&mut self) {
        self.unchanged = 0;
        self.paced.every = Some(self.often);
        let often = self.paced.last.as_ref().and_then(|(at, _)| at.checked_add(self.often));
        self.paced.due = self.paced.due.min(often);
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
        value.set(7, Instant::now());
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
        value.set(7, Instant::now());
        value.hurry();
        let now = Instant::now();
        assert!(value.is_due(now));
        assert_eq!(value.get(now).map(|(value, _)| *value), Some(7));
        value.clear();
        assert!(value.is_due(now) && value.get(now).is_none());
    }

    /// Whether the value is due so long after it was set.
    fn is_due_after<T: PartialEq>(value: &Adaptive<T>, seconds: u64) -> bool {
        value.paced.is_due(Instant::now() + Duration::from_secs(seconds))
    }

    #[test]
    fn changing_value_is_read_often_and_a_steady_one_seldom_with_its_age() {
        let mut value = Adaptive::new(Duration::from_secs(100), Duration::from_secs(500));
        assert!(is_due_after(&value, 0), "at first");
        for number in 0..20 {
            value.set(number, Instant::now());
            assert!(!is_due_after(&value, 80) && is_due_after(&value, 100), "{number}");
        }
        for reading in 1..STEADY_AFTER {
            value.set(19, Instant::now());
            assert!(is_due_after(&value, 100), "reading {reading} after the last change");
        }
        value.set(19, Instant::now());
        assert!(!is_due_after(&value, 400) && is_due_after(&value, 500));
        let later = Instant::now() + Duration::from_secs(400);
        let (last, age) = value.get(later).unwrap();
        assert_eq!((*last, age.as_secs()), (19, 400));
        value.set(20, Instant::now());
        assert!(is_due_after(&value, 100), "it has changed");
        assert!(!is_due_after(&value, 80));
    }

    #[test]
    fn hurried_and_cleared_values_are_read_often_again() {
        let mut value = Adaptive::new(Duration::from_secs(100), Duration::from_secs(500));
        let repeat = |value: &mut Adaptive<u32>| {
            (0..=STEADY_AFTER).for_each(|_| value.set(7, Instant::now()));
            assert!(!is_due_after(value, 400));
        };
        repeat(&mut value);
        value.hurry();
        assert!(is_due_after(&value, 0));
        value.set(7, Instant::now());
        assert!(is_due_after(&value, 100));
        repeat(&mut value);
        value.clear();
        assert!(is_due_after(&value, 0) && value.get(Instant::now()).is_none());
    }

    #[test]
    fn stirred_value_is_read_often_again_but_not_at_once() {
        let mut value = Adaptive::new(Duration::from_secs(100), Duration::from_secs(500));
        (0..=STEADY_AFTER).for_each(|_| value.set(7, Instant::now()));
        value.stir();
        assert!(!is_due_after(&value, 80) && is_due_after(&value, 100));
        value.set(7, Instant::now());
        assert!(is_due_after(&value, 100));
    }

    #[test]
    fn value_is_taken_along_with_others_shortly_before_its_time() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let mut value = Paced::new(Some(ms(500)));
        assert_eq!(value.due(now), now, "at first at once");
        value.set(7, now);
        assert!(!value.is_nearly_due(now + ms(200)) && value.is_nearly_due(now + ms(300)));
        assert!(!value.is_due(now + ms(400)) && value.is_due(now + ms(500)));
        let mut slow = Paced::new(Some(Duration::from_secs(60)));
        slow.set(7, now);
        assert!(!slow.is_nearly_due(now + ms(59_000)), "what takes long is not read more often for that");
        assert!(slow.is_due(now + ms(59_950)));
        assert!(Paced::<u32>::new(None).due(now) > now + ms(1000));
    }

    #[test]
    fn value_that_is_always_read_seldom_is_never_read_more_often() {
        let mut value = Adaptive::new(Duration::from_secs(500), Duration::from_secs(100));
        (0..=STEADY_AFTER).for_each(|_| value.set(7, Instant::now()));
        assert!(!is_due_after(&value, 400) && is_due_after(&value, 500));
    }
}
