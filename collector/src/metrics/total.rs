//! A total, and how much of it was reported, from which both temporalities are computed.

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

    /// The value to report; `None` if there is none.
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
    /// Sets a total that is kept elsewhere; it never goes down.
    pub fn set(&mut self, now: T) {
        if now > self.now {
            self.now = now;
        }
    }
}

impl Total<f64> {
    pub fn add(&mut self, more: f64) {
        self.now += more;
    }

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
