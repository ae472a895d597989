//! Calls that failed alike, and what is told of them once nobody can ask their process any more.

use crate::failed_calls::Arguments;
use crate::model::Process;
use crate::model::namesakes::Renumbering;
use crate::model::operation::HostCall;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FailureKey {
    pub process: u32,
    /// API definition.
    pub api: u32,
    pub status: u16,
    /// Stack definition, 0 for none.
    pub stack: u32,
}

#[derive(Clone, Debug)]
pub struct Failure {
    pub calls: u64,
    pub first: HostCall,
    /// When the last one returned.
    pub last_ns: u64,
    /// Allocations: the most that was asked for.
    pub most_bytes: u64,
    /// Those that were given when the thread asked again.
    pub given_later: u64,
    /// The most calls that gave memory back in between.
    pub frees_before: u64,
    /// Known here once the process is told together with others.
    told: Option<FailureInProcess>,
}

/// What of a failure it takes the process to tell.
#[derive(Clone, Debug)]
pub struct FailureInProcess {
    /// When the first and the last returned, since tracing of the process began.
    pub first_at_ns: u64,
    pub last_at_ns: u64,
    /// Calls that failed because of one before them.
    pub after_context_lost: u64,
    /// Those, and the ones that are told of as their processes' failures.
    pub of_lost_context: u64,
    /// Of the first.
    pub arguments: Arguments,
}

impl Failure {
    /// Of which that call is the first one seen, and not counted yet.
    pub(super) fn new(call: &HostCall) -> Failure {
        Failure {
            calls: 0,
            first: call.clone(),
            last_ns: 0,
            most_bytes: 0,
            given_later: 0,
            frees_before: 0,
            told: None,
        }
    }

    pub fn in_process(&self, key: FailureKey, process: &Process) -> FailureInProcess {
        let tell = || {
            let (of_lost_context, after_context_lost) = self.of_lost_context(key, process);
            FailureInProcess {
                first_at_ns: process.since_begin_ns(end_ns(&self.first)),
                last_at_ns: process.since_begin_ns(self.last_ns),
                after_context_lost,
                of_lost_context,
                arguments: Arguments::of(&self.first, &process.definitions),
            }
        };
        self.told.clone().unwrap_or_else(tell)
    }

    /// All that return what the call did that lost the context, and those but for itself.
    fn of_lost_context(&self, key: FailureKey, process: &Process) -> (u64, u64) {
        match &process.failure {
            Some(lost) if lost.status == key.status => {
                let is_first = lost.api == key.api && lost.stack == key.stack;
                (self.calls, self.calls.saturating_sub(u64::from(is_first)))
            }
            _ => (0, 0),
        }
    }

    /// Makes it one of its process's group; what it is there. `None` where there is no room for it.
    pub(super) fn tell(&mut self, key: FailureKey, together: &mut Renumbering<'_>) -> Option<FailureKey> {
        let told = self.in_process(key, together.member(key.process)?);
        // All of these have the stack of the first.
        self.first = together.call(&self.first)?;
        self.told = Some(told);
        let HostCall { process, api, stack, .. } = self.first;
        Some(FailureKey { process, api, stack, ..key })
    }

    /// Takes in the same of another process, when both are one group's.
    pub(super) fn take_in(&mut self, other: Failure) {
        let is_first = other.first.start_ns < self.first.start_ns;
        let is_last = other.last_ns > self.last_ns;
        if let (Some(told), Some(others)) = (&mut self.told, other.told) {
            told.after_context_lost += others.after_context_lost;
            told.of_lost_context += others.of_lost_context;
            if is_last {
                told.last_at_ns = others.last_at_ns;
            }
            if is_first {
                (told.first_at_ns, told.arguments) = (others.first_at_ns, others.arguments);
            }
        }
        if is_first {
            self.first = other.first;
        }
        self.calls += other.calls;
        self.last_ns = self.last_ns.max(other.last_ns);
        self.most_bytes = self.most_bytes.max(other.most_bytes);
        self.given_later += other.given_later;
        self.frees_before = self.frees_before.max(other.frees_before);
    }
}

pub(super) fn end_ns(call: &HostCall) -> u64 {
    call.start_ns.saturating_add(call.duration_ns)
}
