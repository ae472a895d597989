//! Numbers for the active spans: the OpenTelemetry spans under which threads made their calls.
//!
//! Each call and range carries the number of its span, 0 for none. Bounded, since a server handles any number
//! of requests: the oldest span is forgotten when there are too many, and gets a new number if it comes
//! again.

use std::collections::VecDeque;

use gputrace_wire::caller::Caller;
use rustc_hash::FxHashMap;

/// The most spans that are remembered: more than a server has requests in progress.
const CALLERS_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub struct Callers {
    numbers: FxHashMap<Caller, u32>,
    /// In order of their numbers, which are consecutive.
    known: VecDeque<Caller>,
    /// The number of the first of `known`.
    first: u32,
}

impl Callers {
    /// The number of a span, and whether the span is new.
    pub fn number(&mut self, caller: &Caller) -> (u32, bool) {
        if caller.is_nobody() {
            return (0, false);
        }
        if let Some(number) = self.numbers.get(caller) {
            return (*number, false);
        }
        (self.add(*caller), true)
    }

    fn add(&mut self, caller: Caller) -> u32 {
        // The numbers run out after four billion spans.
        let Some(number) = self.next().filter(|number| *number < u32::MAX) else { return 0 };
        self.keep(number, caller);
        self.numbers.insert(caller, number);
        number
    }

    fn next(&self) -> Option<u32> {
        self.first.max(1).checked_add(u32::try_from(self.known.len()).ok()?)
    }

    /// Records a number that another `Callers` gave. Numbers arrive in order.
    pub fn learn(&mut self, number: u32, caller: &Caller) {
        if self.next() != Some(number) {
            self.known.clear();
        }
        self.keep(number, *caller);
    }

    fn keep(&mut self, number: u32, caller: Caller) {
        if self.known.is_empty() {
            self.first = number;
        }
        self.known.push_back(caller);
        if self.known.len() > CALLERS_MAX
            && let Some(oldest) = self.known.pop_front()
        {
            self.numbers.remove(&oldest);
            self.first = self.first.saturating_add(1);
        }
    }

    /// The span of that number, unless it was forgotten.
    pub fn get(&self, number: u32) -> Option<&Caller> {
        let at = number.checked_sub(self.first).filter(|_| number != 0)?;
        self.known.get(at as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(span: u64) -> Caller {
        Caller { trace: [1, 2], span, flags: 1, remote: 0 }
    }

    #[test]
    fn caller_has_one_number_as_long_as_it_is_known() {
        let mut callers = Callers::default();
        assert_eq!(callers.number(&Caller::NOBODY), (0, false));
        assert_eq!((callers.number(&caller(7)), callers.number(&caller(8))), ((1, true), (2, true)));
        assert_eq!(callers.number(&caller(7)), (1, false));
        assert_eq!((callers.get(1), callers.get(2)), (Some(&caller(7)), Some(&caller(8))));
        assert_eq!((callers.get(0), callers.get(3)), (None, None));
    }

    #[test]
    fn numbers_that_are_learnt_are_those_that_were_given() {
        let (mut given, mut learnt) = (Callers::default(), Callers::default());
        for span in 1..=200_000 {
            let (number, _) = given.number(&caller(span));
            learnt.learn(number, &caller(span));
            assert_eq!(learnt.get(number), Some(&caller(span)));
        }
        assert_eq!((learnt.known == given.known, learnt.first), (true, given.first));
        learnt.learn(7, &caller(9));
        assert_eq!((learnt.get(7), learnt.get(200_000)), (Some(&caller(9)), None));
    }

    #[test]
    fn million_requests_take_no_more_than_are_kept() {
        let mut callers = Callers::default();
        for span in 1..=1_000_000 {
            let (number, is_new) = callers.number(&caller(span));
            assert!(is_new && callers.get(number) == Some(&caller(span)));
        }
        assert_eq!((callers.known.len(), callers.numbers.len()), (CALLERS_MAX, CALLERS_MAX));
        assert_eq!((callers.get(1), callers.get(1_000_000)), (None, Some(&caller(1_000_000))));
        let (again, is_new) = callers.number(&caller(1));
        assert!(is_new && again == 1_000_001);
    }
}
