//! A value that is read less often than samples are taken, with its age.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct Paced<T> {
    every: Option<Duration>,
    last: Option<(Instant, T)>,
}

impl<T> Paced<T> {
    /// A value that is read at most once in that time; `None`: never.
    pub fn new(every: Option<Duration>) -> Paced<T> {
        Paced { every, last: None }
    }

    pub fn is_due(&self, now: Instant) -> bool {
        let Some(every) = self.every else { return false };
        // A tick may come a little early; a tenth earlier is better than one sample later.
        self.last.as_ref().is_none_or(|(at, _)| now.duration_since(*at) + every / 10 >= every)
    }

    pub fn set(&mut self, value: T) {
        self.last = Some((Instant::now(), value));
    }

    /// The value and how old it is.
    pub fn get(&self, now: Instant) -> Option<(&T, Duration)> {
        self.last.as_ref().map(|(at, value)| (value, now.saturating_duration_since(*at)))
    }

    pub fn clear(&mut self) {
        self.last = None;
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
}
