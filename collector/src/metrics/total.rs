//! A total, and how much of it was reported: what both temporalities are made of.

use crate::metrics::settings::Temporality;

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Total<T> {
    now: T,
    reported: T,
}

impl Total<u64> {
    #[inline]
    pub fn add(&mut self, more: u64) {
        self.now = self.now.saturating_add(more);
    }

    /// What is to be reported of a number that was counted here; `None` if there is nothing new.
    pub fn report(&mut self, temporality: Temporality) -> Option<u64> {
        match temporality {
            Temporality::Cumulative => (self.now > 0).then_some(self.now),
            Temporality::Delta => {
                let new = self.now.saturating_sub(std::mem::replace(&mut self.reported, self.now));
                (new > 0).then_some(new)
            }
        }
    }
}

impl<T: Copy + PartialOrd + Default> Total<T> {
    /// A total that somebody else keeps; it never goes down.
    pub fn set(&mut self, now: T) {
        if now > self.now {
            self.now = now;
        }
    }
}

impl Total<f64> {
    pub fn report(&mut self, temporality: Temporality) -> Option<f64> {
        match temporality {
            Temporality::Cumulative => (self.now > 0.0).then_some(self.now),
            Temporality::Delta => {
                let new = self.now - std::mem::replace(&mut self.reported, self.now);
                (new > 0.0).then_some(new)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_add_up_to_the_total() {
        let mut total = Total::<u64>::default();
        assert_eq!(total.report(Temporality::Delta), None);
        total.add(5);
        assert_eq!(total.report(Temporality::Delta), Some(5));
        assert_eq!(total.report(Temporality::Delta), None);
        total.set(12);
        total.set(3);
        assert_eq!(total.report(Temporality::Delta), Some(7));
        assert_eq!(total.report(Temporality::Cumulative), Some(12));
    }
}
