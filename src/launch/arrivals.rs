//! Which of the signals that reached us the program has had already, because they were sent to our whole
//! process group. Pure: times and what was heard come in, what is to be passed on comes out.
//!
//! A signal to the group reaches the witness too, at the same time. What reached us waits for that a
//! little; what the witness had as well is the group's. The same signal to us alone and to the group, one
//! right after the other (`timeout` does that), would be one to a program that has not yet got round to it;
//! so it is one here: passing it on later than it was sent would make it two.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::launch::heard::Heard;

/// How long after a signal to us the same one to the group may come and be one with it. The kernel goes
/// through a group at once; a supervisor that goes through a list of processes takes some milliseconds.
pub const WINDOW: Duration = Duration::from_millis(20);
/// How long after the witness's we may get round to our own: on a machine with a load, or if we were stopped.
pub const LATE: Duration = Duration::from_secs(1);
/// More waiting than this are passed on without waiting.
const MAXIMUM_WAITING: usize = 1024;
/// More than this that only the witness had are forgotten, oldest first.
const MAXIMUM_WITNESSED: usize = 256;

#[derive(Default, Debug)]
pub struct Arrivals {
    /// Reached us; whether the group got it is open. Oldest first.
    waiting: VecDeque<Waiting>,
    /// Reached the group, for as long as that says something on what reaches us. One of each signal that does not queue.
    witnessed: VecDeque<Witnessed>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    heard: Heard,
    since: Instant,
    /// The program got it from us already.
    is_passed_on: bool,
}

#[derive(Clone, Copy, Debug)]
struct Witnessed {
    heard: Heard,
    until: Instant,
    /// Ours has been seen.
    is_ours_seen: bool,
    /// How many more of ours came than of the witness's, who may come to them later.
    ahead: u32,
}

/// The group got it. To be passed on only if the program is not in the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group(pub Heard);

impl Arrivals {
    /// One reached us.
    pub fn reached_us(&mut self, heard: Heard, is_passed_on: bool, now: Instant) -> Option<Group> {
        self.forget(now);
        let same = self.witnessed.iter().position(|witnessed| is_same(&witnessed.heard, &heard));
        let Some(place) = same else {
            self.waiting.push_back(Waiting { heard, since: now, is_passed_on });
            return None;
        };
        if heard.is_queued() {
            self.witnessed.remove(place);
            return (!is_passed_on).then_some(Group(heard));
        }
        let witnessed = self.witnessed.get_mut(place)?;
        if witnessed.is_ours_seen {
            witnessed.ahead = witnessed.ahead.saturating_add(1);
            return None;
        }
        witnessed.is_ours_seen = true;
        witnessed.until = now + WINDOW;
        (!is_passed_on).then_some(Group(heard))
    }

    /// One reached the witness.
    pub fn reached_the_witness(&mut self, heard: Heard, now: Instant) -> Option<Group> {
        self.forget(now);
        if heard.is_queued() {
            let ours = self.waiting.iter().position(|waiting| is_same(&waiting.heard, &heard));
            let Some(ours) = ours.and_then(|place| self.waiting.remove(place)) else {
                self.note(Witnessed { heard, until: now + LATE, is_ours_seen: false, ahead: 0 });
                return None;
            };
            return (!ours.is_passed_on).then_some(Group(ours.heard));
        }
        let mut ours = self.waiting.iter().filter(|waiting| waiting.heard.signal == heard.signal);
        let (first, more) = (ours.next().copied(), ours.count());
        let is_passed_on =
            self.waiting.iter().any(|ours| ours.heard.signal == heard.signal && ours.is_passed_on);
        self.waiting.retain(|waiting| waiting.heard.signal != heard.signal);

        let known = self.witnessed.iter().position(|witnessed| witnessed.heard.signal == heard.signal);
        let known = known.and_then(|place| self.witnessed.remove(place));
        let ahead =
            known.map_or(0, |known| known.ahead).saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
        let is_ours_seen = first.is_some() || ahead > 0;
        let until = now + if is_ours_seen { WINDOW } else { LATE };
        // What came together with the first is one with it, or this is told of it later.
        let ahead = if first.is_some() { ahead } else { ahead.saturating_sub(1) };
        self.note(Witnessed { heard, until, is_ours_seen, ahead });
        first.filter(|_| !is_passed_on).map(|ours| Group(ours.heard))
    }

    /// When the witness is to be asked whether it had the oldest that waits.
    pub fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|oldest| if self.is_full() { oldest.since } else { oldest.since + WINDOW })
    }

    /// One that was due at `then`, which the witness did not have: it was for us alone, and is the program's.
    pub fn ours_alone(&mut self, then: Instant) -> Option<Heard> {
        while self.due().is_some_and(|due| due <= then) {
            let oldest = self.waiting.pop_front()?;
            if !oldest.is_passed_on {
                return Some(oldest.heard);
            }
        }
        None
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= MAXIMUM_WAITING
    }

    fn note(&mut self, witnessed: Witnessed) {
        if self.witnessed.len() >= MAXIMUM_WITNESSED {
            self.witnessed.pop_front();
        }
        self.witnessed.push_back(witnessed);
    }

    fn forget(&mut self, now: Instant) {
        self.witnessed.retain(|witnessed| witnessed.until >= now);
    }
}

/// Whether both can be of one sending: of those that queue each is one, of the others the senders' merge.
pub fn is_same(one: &Heard, other: &Heard) -> bool {
    one.signal == other.signal && (!one.is_queued() || (one.code, one.sender) == (other.code, other.sender))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Heard = Heard { signal: libc::SIGTERM, code: libc::SI_USER, sender: 7, value: 0 };
    const MS: Duration = Duration::from_millis(1);

    fn real_time() -> Heard {
        Heard { signal: libc::SIGRTMIN() + 1, ..TERM }
    }

    #[test]
    fn a_signal_to_us_alone_is_the_programs_after_a_while() {
        let (mut arrivals, start) = (Arrivals::default(), Instant::now());
        assert_eq!(arrivals.reached_us(TERM, false, start), None);
        assert_eq!(arrivals.due(), Some(start + WINDOW));
        assert_eq!(arrivals.ours_alone(start + WINDOW - MS), None);
        assert_eq!(arrivals.ours_alone(start + WINDOW), Some(TERM));
        assert_eq!(arrivals.ours_alone(start + WINDOW), None);
    }

    #[test]
    fn a_signal_to_the_group_is_told_once_whoever_hears_it_first() {
        for witness_is_first in [true, false] {
            for heard in [TERM, real_time()] {
                let (mut arrivals, now) = (Arrivals::default(), Instant::now());
                let mut told = Vec::new();
                for round in 0..2 {
                    if (round == 0) == witness_is_first {
                        told.extend(arrivals.reached_the_witness(heard, now));
                    } else {
                        told.extend(arrivals.reached_us(heard, false, now));
                    }
                }
                assert_eq!(told, [Group(heard)]);
                assert_eq!(arrivals.due(), None);
            }
        }
    }

    /// First to the process, then to its group, as `timeout` does: in each order in which we can hear of it.
    #[test]
    fn one_to_us_and_one_to_the_group_at_once_are_one() {
        for order in ["uuw", "uwu", "wuu", "wu", "uw"] {
            let (mut arrivals, now) = (Arrivals::default(), Instant::now());
            let mut told = Vec::new();
            for by in order.chars() {
                if by == 'w' {
                    told.extend(arrivals.reached_the_witness(TERM, now));
                } else {
                    told.extend(arrivals.reached_us(TERM, false, now));
                }
            }
            assert_eq!(told, [Group(TERM)], "{order}");
            assert_eq!(arrivals.due(), None, "{order}");
            // And what comes later is another.
            let later = now + WINDOW + MS;
            assert_eq!(arrivals.reached_us(TERM, false, later), None, "{order}");
            assert_eq!(arrivals.ours_alone(later + WINDOW), Some(TERM), "{order}");
        }
    }

    #[test]
    fn two_to_the_group_leave_nothing_that_swallows_a_later_one() {
        for order in ["uwuw", "wuwu", "wwuu", "uuww", "uwwu", "wuuw"] {
            let (mut arrivals, now) = (Arrivals::default(), Instant::now());
            for by in order.chars() {
                if by == 'w' {
                    arrivals.reached_the_witness(TERM, now);
                } else {
                    arrivals.reached_us(TERM, false, now);
                }
            }
            assert_eq!(arrivals.due(), None, "{order}");
            let later = now + WINDOW + MS;
            arrivals.reached_us(TERM, false, later);
            assert_eq!(arrivals.ours_alone(later + WINDOW), Some(TERM), "{order}");
        }
    }

    /// We may be stopped, or wait for a processor.
    #[test]
    fn ours_may_come_late() {
        let (mut arrivals, now) = (Arrivals::default(), Instant::now());
        assert_eq!(arrivals.reached_the_witness(TERM, now), None);
        assert_eq!(arrivals.reached_us(TERM, false, now + LATE), Some(Group(TERM)));
    }

    #[test]
    fn what_only_the_witness_had_is_forgotten() {
        let (mut arrivals, now) = (Arrivals::default(), Instant::now());
        assert_eq!(arrivals.reached_the_witness(TERM, now), None);
        assert_eq!(arrivals.reached_us(TERM, false, now + LATE + MS), None);
        assert!(arrivals.due().is_some());
    }

    #[test]
    fn real_time_signals_are_counted_by_their_senders() {
        let (mut arrivals, now) = (Arrivals::default(), Instant::now());
        let another = Heard { sender: 8, ..real_time() };
        for heard in [real_time(), another, real_time()] {
            assert_eq!(arrivals.reached_us(heard, false, now), None);
        }
        assert_eq!(arrivals.reached_the_witness(real_time(), now), Some(Group(real_time())));
        assert_eq!(arrivals.ours_alone(now + WINDOW), Some(another));
        assert_eq!(arrivals.ours_alone(now + WINDOW), Some(real_time()));
        assert_eq!(arrivals.ours_alone(now + WINDOW), None);
    }

    #[test]
    fn what_is_passed_on_already_is_not_passed_on_again() {
        let (mut arrivals, now) = (Arrivals::default(), Instant::now());
        assert_eq!(arrivals.reached_us(TERM, true, now), None);
        assert_eq!(arrivals.ours_alone(now + WINDOW), None);
        assert_eq!(arrivals.due(), None);
        assert_eq!(arrivals.reached_the_witness(TERM, now), None);
        assert_eq!(arrivals.reached_us(TERM, true, now), None);
    }

    #[test]
    fn what_waits_is_bounded() {
        let (mut arrivals, now) = (Arrivals::default(), Instant::now());
        for number in 0..2 * MAXIMUM_WAITING {
            arrivals.reached_us(Heard { value: number, ..real_time() }, false, now);
            arrivals.reached_the_witness(Heard { sender: 9, ..real_time() }, now);
            while arrivals.ours_alone(now).is_some() {}
        }
        assert!(arrivals.waiting.len() < MAXIMUM_WAITING && arrivals.witnessed.len() <= MAXIMUM_WITNESSED);
    }
}
