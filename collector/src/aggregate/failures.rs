//! Calls that failed: how often, by process, call, error and stack, and whether a second attempt succeeded.
//!
//! While nothing fails, a call costs one comparison.

use gputrace_wire::call::Detail;
use gputrace_wire::cell::kind;
use rustc_hash::FxHashMap;

use crate::aggregate::bounded::Bounded;
use crate::aggregate::failure::{Failure, FailureKey, end_ns};
use crate::failed_calls::{self, Answer, Outcome};
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

/// Failures, and answers, that have a row.
const FAILURES_MAX: usize = 4096;
const ANSWERS_MAX: usize = 1024;
/// Threads whose next allocations are watched.
const ASKING_MAX: usize = 4096;

/// A thread that was refused memory.
#[derive(Clone, Copy, Debug)]
struct Asking {
    key: FailureKey,
    memory: u8,
    bytes: u64,
    frees: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Failures {
    entries: Bounded<FailureKey, Failure, FAILURES_MAX>,
    /// Calls that failed, and those of them that have no row.
    pub calls: u64,
    pub beyond: u64,
    answers: Bounded<(u32, u32, u16), (u64, &'static Answer), ANSWERS_MAX>,
    answers_beyond: u64,
    /// By process and thread.
    asking: FxHashMap<(u32, u32), Asking>,
}

impl Failures {
    #[inline]
    pub fn add(&mut self, call: &HostCall, definitions: &Definitions) {
        if call.status != 0 {
            self.refused(call, definitions);
        } else if !self.asking.is_empty() {
            self.granted(call);
        }
    }

    #[cold]
    #[inline(never)]
    fn refused(&mut self, call: &HostCall, definitions: &Definitions) {
        if let Outcome::Answered(answer) = failed_calls::outcome(call, definitions) {
            return self.answered(call, answer);
        }
        self.calls += 1;
        let key = FailureKey { process: call.process, api: call.api, status: call.status, stack: call.stack };
        let Some(entry) = self.entries.row(key, || Failure::new(call)) else {
            self.beyond += 1;
            return;
        };
        let bytes = match call.detail {
            Detail::Memory(memory) => memory.bytes,
            _ => 0,
        };
        entry.calls += 1;
        entry.last_ns = entry.last_ns.max(end_ns(call));
        entry.most_bytes = entry.most_bytes.max(bytes);
        // Rings are read one after the other.
        if (call.start_ns, call.thread) < (entry.first.start_ns, entry.first.thread) {
            entry.first = call.clone();
        }
        if let (kind::ALLOC, Detail::Memory(memory)) = (call.kind, call.detail) {
            let who = (call.process, call.thread);
            if self.asking.len() < ASKING_MAX || self.asking.contains_key(&who) {
                let asking = Asking { key, memory: memory.memory, bytes: memory.bytes, frees: 0 };
                self.asking.insert(who, asking);
            }
        }
    }

    /// Stops watching the process's threads.
    pub fn process_ends(&mut self, process: u32) {
        self.asking.retain(|(of, _), _| *of != process);
    }

    fn answered(&mut self, call: &HostCall, answer: &'static Answer) {
        match self.answers.row((call.process, call.api, call.status), || (0, answer)) {
            Some((calls, _)) => *calls += 1,
            None => self.answers_beyond += 1,
        }
    }

    #[cold]
    #[inline(never)]
    fn granted(&mut self, call: &HostCall) {
        let Detail::Memory(memory) = call.detail else { return };
        let who = (call.process, call.thread);
        let Some(asking) = self.asking.get_mut(&who) else { return };
        if call.kind == kind::FREE {
            asking.frees += 1;
            return;
        }
        if memory.memory != asking.memory || memory.bytes < asking.bytes {
            return;
        }
        let asking = *asking;
        self.asking.remove(&who);
        if let Some(entry) = self.entries.get_mut(&asking.key) {
            entry.given_later += 1;
            entry.frees_before = entry.frees_before.max(asking.frees);
        }
    }

    /// The earliest first.
    pub fn sorted(&self) -> Vec<(FailureKey, &Failure)> {
        let mut all: Vec<_> = self.entries.iter().map(|(key, failure)| (*key, failure)).collect();
        all.sort_unstable_by_key(|(key, failure)| (failure.first.start_ns, *key));
        all
    }

    /// Answers by design, by process, API definition and status; and how many have no row.
    pub fn answers(&self) -> (impl Iterator<Item = (u32, u32, u16, u64, &'static Answer)>, u64) {
        let all = self.answers.sorted().into_iter();
        let all =
            all.map(|((process, api, status), (calls, answer))| (process, api, status, *calls, *answer));
        (all, self.answers_beyond)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_wire::call::{Memory, memory};
    use gputrace_wire::definition::kind as def;

    use super::*;
    use crate::batch::Definition;

    fn definitions() -> Definitions {
        let mut definitions = Definitions::default();
        for (id, text) in [(1, "cuMemAlloc_v2"), (2, "cuStreamQuery")] {
            definitions.add(&Definition { kind: def::API, id, fields: vec![], text: text.into() });
        }
        definitions
    }

    fn call(call_kind: u16, status: u16, thread: u32, bytes: u64, at_ns: u64) -> HostCall {
        HostCall {
            thread,
            kind: call_kind,
            api: 1,
            start_ticks: at_ns,
            start_ns: at_ns,
            duration_ns: 5,
            stack: 7,
            status,
            detail: Detail::Memory(Memory { memory: memory::DEVICE, bytes, ..Memory::default() }),
            ..HostCall::default()
        }
    }

    #[test]
    fn memory_given_at_a_second_attempt_is_counted_with_its_failure() {
        let (definitions, mut failures) = (definitions(), Failures::default());
        let mut add = |call: HostCall| failures.add(&call, &definitions);
        add(call(kind::ALLOC, 2, 1, 1 << 30, 100));
        add(call(kind::FREE, 0, 1, 0, 110));
        add(call(kind::FREE, 0, 2, 0, 111));
        add(call(kind::ALLOC, 0, 1, 1 << 20, 115));
        add(call(kind::FREE, 0, 1, 0, 116));
        add(call(kind::ALLOC, 0, 2, 1 << 30, 117));
        add(call(kind::ALLOC, 0, 1, 1 << 30, 120));
        add(call(kind::ALLOC, 0, 1, 1 << 30, 121));
        // The second time it is refused for good.
        add(call(kind::ALLOC, 2, 1, 3 << 30, 200));
        add(call(kind::ALLOC, 2, 1, 3 << 30, 210));
        let [(_, failure)] = failures.sorted()[..] else { panic!("{failures:?}") };
        assert_eq!((failure.calls, failure.given_later, failure.frees_before), (3, 1, 2));
        assert_eq!((failure.first.start_ns, failure.last_ns, failure.most_bytes), (100, 215, 3 << 30));
        assert_eq!((failures.calls, failures.beyond), (3, 0));
    }

    #[test]
    fn failures_without_a_row_are_counted() {
        let (definitions, mut failures) = (definitions(), Failures::default());
        for stack in 0..FAILURES_MAX as u32 + 10 {
            let failed = HostCall { stack, thread: stack, ..call(kind::ALLOC, 2, 1, 64, u64::from(stack)) };
            failures.add(&failed, &definitions);
            failures.add(&failed, &definitions);
        }
        assert_eq!(failures.sorted().len(), FAILURES_MAX);
        assert_eq!((failures.calls, failures.beyond), (2 * FAILURES_MAX as u64 + 20, 20));
        assert!(failures.asking.len() <= ASKING_MAX);
    }

    #[test]
    fn exited_process_is_watched_no_more() {
        let (definitions, mut failures) = (definitions(), Failures::default());
        for (process, thread) in [(0, 1), (1, 1), (1, 2)] {
            failures.add(&HostCall { process, ..call(kind::ALLOC, 2, thread, 64, 9) }, &definitions);
        }
        failures.process_ends(1);
        assert_eq!(failures.asking.keys().collect::<Vec<_>>(), [&(0, 1)]);
        assert_eq!((failures.sorted().len(), failures.calls), (2, 3), "their failures stay");
    }

    #[test]
    fn answers_are_counted_apart_from_failures_with_their_reason() {
        let (definitions, mut failures) = (definitions(), Failures::default());
        for (status, times) in [(600, 5), (700, 2)] {
            for _ in 0..times {
                let query =
                    HostCall { api: 2, status, detail: Detail::default(), ..call(kind::CALL, 0, 1, 0, 9) };
                failures.add(&query, &definitions);
            }
        }
        let (answers, beyond) = failures.answers();
        let answers: Vec<_> = answers.map(|(_, api, status, calls, _)| (api, status, calls)).collect();
        assert_eq!((answers, beyond, failures.calls), (vec![(2, 600, 5)], 0, 2));
    }
}
