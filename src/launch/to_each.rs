//! Which of the signals that our group got were sent to each process by itself, as a supervisor does that goes
//! through a tree of processes: a program that left our group has those already, and not the group's. Pure, as
//! [`Arrivals`](super::arrivals::Arrivals).
//!
//! What is sent to each process reaches the outsider too, a witness that stands in no group of ours.

use std::collections::VecDeque;
use std::time::Instant;

use crate::launch::arrivals::{LATE, WINDOW, is_same};
use crate::launch::heard::Heard;

/// More than this that only the outsider had are forgotten, oldest first.
const MAXIMUM: usize = 256;

#[derive(Default, Debug)]
pub struct ToEach {
    /// Our group got it, and the program is elsewhere. Oldest first.
    undecided: VecDeque<(Heard, Instant)>,
    /// The outsider got it, and until when that says something on what our group got.
    outside: VecDeque<(Heard, Instant)>,
    /// The program got it as the group's, and until when the outsider's may come, too late.
    passed: VecDeque<(Heard, Instant)>,
}

impl ToEach {
    pub fn reached_the_group(&mut self, heard: Heard, now: Instant) {
        self.undecided.push_back((heard, now));
    }

    pub fn reached_the_outsider(&mut self, heard: Heard, now: Instant) {
        self.passed.retain(|(_, until)| *until >= now);
        // Perhaps that one's, of a sender that took its time: the program has it twice then, and must not miss the next that
        // the group gets. If it is of another sending, the group has it within the window.
        let passed = self.passed.iter().position(|(other, _)| is_same(other, &heard));
        let until =
            now + if passed.and_then(|place| self.passed.remove(place)).is_some() { WINDOW } else { LATE };
        self.outside.retain(|(_, until)| *until >= now);
        if self.outside.len() >= MAXIMUM {
            self.outside.pop_front();
        }
        self.outside.push_back((heard, until));
    }

    /// When the outsider is to be asked whether it had the oldest that is undecided.
    pub fn due(&self) -> Option<Instant> {
        let (_, since) = self.undecided.front()?;
        Some(if self.undecided.len() > MAXIMUM { *since } else { *since + WINDOW })
    }

    /// One that was due at `then`, which the outsider did not have: it was for the group, and the program has it
    /// from nobody else.
    pub fn the_groups(&mut self, then: Instant) -> Option<Heard> {
        while self.due().is_some_and(|due| due <= then) {
            let (heard, since) = self.undecided.pop_front()?;
            if !self.had_by_the_outsider(&heard, since) {
                if self.passed.len() >= MAXIMUM {
                    self.passed.pop_front();
                }
                self.passed.push_back((heard, then + LATE));
                return Some(heard);
            }
        }
        None
    }

    /// Of those that queue each is one sending. Of the others all until now are: what is left would swallow a later one.
    fn had_by_the_outsider(&mut self, heard: &Heard, since: Instant) -> bool {
        self.outside.retain(|(_, until)| *until >= since);
        let before = self.outside.len();
        if heard.is_queued() {
            let place = self.outside.iter().position(|(other, _)| is_same(other, heard));
            return place.and_then(|place| self.outside.remove(place)).is_some();
        }
        self.outside.retain(|(other, _)| !is_same(other, heard));
        self.outside.len() < before
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TERM: Heard = Heard { signal: libc::SIGTERM, code: libc::SI_USER, sender: 7, value: 0 };
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_the_outsider_had_too_was_sent_to_each_whoever_hears_it_first() {
        for outsider_is_first in [true, false] {
            let (mut to_each, now) = (ToEach::default(), Instant::now());
            if outsider_is_first {
                to_each.reached_the_outsider(TERM, now);
            }
            to_each.reached_the_group(TERM, now);
            if !outsider_is_first {
                to_each.reached_the_outsider(TERM, now + 19 * MS);
            }
            assert_eq!((to_each.due(), to_each.the_groups(now + WINDOW)), (Some(now + WINDOW), None));
            assert_eq!(to_each.due(), None);
            // The next is the group's alone, however soon it comes.
            to_each.reached_the_group(TERM, now + WINDOW);
            assert_eq!(to_each.the_groups(now + WINDOW + 19 * MS), None, "not due");
            assert_eq!(to_each.the_groups(now + 2 * WINDOW), Some(TERM));
        }
    }

    #[test]
    fn what_comes_to_the_outsider_too_late_swallows_nothing() {
        let (mut to_each, now) = (ToEach::default(), Instant::now());
        to_each.reached_the_group(TERM, now);
        assert_eq!(to_each.the_groups(now + WINDOW), Some(TERM));
        to_each.reached_the_outsider(TERM, now + WINDOW + MS);
        let later = now + 10 * WINDOW;
        to_each.reached_the_group(TERM, later);
        assert_eq!(to_each.the_groups(later + WINDOW), Some(TERM), "the group's alone");
        // Long after, one that is sent to each is known again.
        let much_later = later + LATE + 2 * WINDOW;
        to_each.reached_the_outsider(TERM, much_later);
        to_each.reached_the_group(TERM, much_later);
        assert_eq!(to_each.the_groups(much_later + WINDOW), None);
    }

    #[test]
    fn sendings_that_came_to_one_leave_nothing_that_swallows_a_later_one() {
        let (mut to_each, now) = (ToEach::default(), Instant::now());
        to_each.reached_the_outsider(TERM, now);
        to_each.reached_the_outsider(TERM, now + MS);
        to_each.reached_the_group(TERM, now + MS);
        assert_eq!(to_each.the_groups(now + MS + WINDOW), None);
        to_each.reached_the_group(TERM, now + MS + WINDOW);
        assert_eq!(to_each.the_groups(now + MS + 2 * WINDOW), Some(TERM));
    }

    #[test]
    fn real_time_signals_are_counted_and_others_are_others() {
        let (mut to_each, now) = (ToEach::default(), Instant::now());
        let real_time = Heard { signal: libc::SIGRTMIN() + 1, ..TERM };
        let by_another = Heard { sender: 8, ..real_time };
        to_each.reached_the_outsider(real_time, now);
        for heard in [by_another, real_time, real_time, TERM] {
            to_each.reached_the_group(heard, now);
        }
        let told: Vec<_> = std::iter::from_fn(|| to_each.the_groups(now + WINDOW)).collect();
        assert_eq!(told, [by_another, real_time, TERM]);
    }

    #[test]
    fn what_only_the_outsider_had_is_forgotten_and_bounded() {
        let (mut to_each, now) = (ToEach::default(), Instant::now());
        for _ in 0..2 * MAXIMUM {
            to_each.reached_the_outsider(TERM, now);
        }
        assert_eq!(to_each.outside.len(), MAXIMUM);
        let later = now + LATE + MS;
        to_each.reached_the_group(TERM, later);
        assert_eq!(to_each.the_groups(later + WINDOW), Some(TERM));
        for _ in 0..=MAXIMUM {
            to_each.reached_the_group(TERM, later);
        }
        assert_eq!(to_each.the_groups(later), Some(TERM), "too many wait no longer");
    }
}
