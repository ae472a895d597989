//! What a thread did since its last launch, kept call by call.

use gputrace_wire::call::{Detail, wait};
use gputrace_wire::cell::{flag, kind};

use crate::model::before::{Before, Blocked, BlockedBy};
use crate::model::operation::HostCall;

/// The calls of one thread since its last launch, copy or memset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SinceLaunch {
    before: Before,
    longest_ns: u64,
    /// The stream that waits for an event, 0 for none. It stays set until something is launched there.
    awaiting: u32,
    last_end_ns: u64,
    last_stack: u32,
}

impl SinceLaunch {
    /// Takes note of a call, and fills in what happened before it if it is a launch.
    #[inline]
    pub fn call(&mut self, call: &mut HostCall) {
        let end_ns = call.start_ns.saturating_add(call.duration_ns);
        let between_ns = call.start_ns.saturating_sub(self.last_end_ns);
        if between_ns >= self.longest_ns {
            (self.longest_ns, self.before.from, self.before.to) = (between_ns, self.last_stack, call.stack);
        }
        (self.last_end_ns, self.last_stack) = (end_ns, call.stack);
        let executes = call.status == 0 && call.flags & flag::CAPTURED == 0;
        match call.kind {
            kind::LAUNCH | kind::GRAPH_LAUNCH | kind::COPY | kind::FILL if executes => {
                self.before.awaits = self.awaiting != 0 && self.awaiting == call.stream;
                if self.before.awaits {
                    self.awaiting = 0;
                }
                call.before = self.before;
                self.before = Before::default();
                self.longest_ns = 0;
                if matches!(call.kind, kind::COPY | kind::FILL) {
                    self.blocks(BlockedBy::Copy, call, end_ns);
                }
            }
            kind::WAIT => match call.detail {
                Detail::Wait { what: wait::STREAM_ON_EVENT | wait::STREAM_ON_VALUE, .. } => {
                    self.awaiting = call.stream;
                }
                _ if call.duration_ns > self.blocked_ns() => self.blocks(BlockedBy::Sync, call, end_ns),
                _ => {}
            },
            _ if call.duration_ns > self.longest_ns => {
                (self.longest_ns, self.before.from, self.before.to) =
                    (call.duration_ns, call.stack, call.stack);
            }
            _ => {}
        }
    }

    fn blocked_ns(&self) -> u64 {
        self.before.blocked.end_ns.saturating_sub(self.before.blocked.start_ns)
    }

    fn blocks(&mut self, by: BlockedBy, call: &HostCall, end_ns: u64) {
        self.before.blocked = Blocked { by, start_ns: call.start_ns, end_ns, stack: call.stack };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: u16, stack: u32, start_ns: u64, duration_ns: u64) -> HostCall {
        HostCall { kind, stack, start_ns, duration_ns, ..HostCall::default() }
    }

    fn before(calls: impl IntoIterator<Item = HostCall>) -> Before {
        let mut since = SinceLaunch::default();
        let mut last = Before::default();
        for mut call in calls {
            since.call(&mut call);
            last = call.before;
        }
        last
    }

    #[test]
    fn launch_has_the_stacks_around_the_longest_time_outside_of_calls() {
        let first = call(kind::LAUNCH, 1, 0, 10);
        let found = before([
            first.clone(),
            call(kind::CALL, 2, 500, 5),
            call(kind::CALL, 3, 515, 5),
            call(kind::LAUNCH, 4, 530, 10),
        ]);
        assert_eq!((found.from, found.to, found.blocked.by), (1, 2, BlockedBy::Nothing));
        // A call in which the thread spent more.
        let found = before([first.clone(), call(kind::ALLOC, 2, 500, 900), call(kind::LAUNCH, 4, 1_430, 10)]);
        assert_eq!((found.from, found.to), (2, 2));
        // What was before the last launch counts for that launch.
        let found = before([first, call(kind::LAUNCH, 2, 500, 5), call(kind::LAUNCH, 3, 520, 10)]);
        assert_eq!((found.from, found.to), (2, 3));
    }

    #[test]
    fn launch_has_the_longest_wait_or_the_copy_before_it() {
        let copy = call(kind::COPY, 1, 0, 400);
        let wait = |stack, at, ns| HostCall {
            detail: Detail::Wait { what: wait::STREAM, handle: 0 },
            ..call(kind::WAIT, stack, at, ns)
        };
        let launch = call(kind::LAUNCH, 9, 5_000, 10);
        let found = before([copy.clone(), wait(2, 410, 300), launch.clone()]);
        assert_eq!(found.blocked, Blocked { by: BlockedBy::Copy, start_ns: 0, end_ns: 400, stack: 1 });
        let found = before([copy, wait(2, 410, 500), wait(3, 1_000, 450), launch.clone()]);
        assert_eq!(found.blocked, Blocked { by: BlockedBy::Sync, start_ns: 410, end_ns: 910, stack: 2 });
        let failed = HostCall { status: 1, ..call(kind::COPY, 1, 0, 400) };
        assert_eq!(before([failed, launch]).blocked, Blocked::default());
    }

    #[test]
    fn only_the_next_launch_in_a_stream_waits_for_the_event() {
        let wait = HostCall {
            detail: Detail::Wait { what: wait::STREAM_ON_EVENT, handle: 5 },
            stream: 7,
            ..call(kind::WAIT, 1, 0, 5)
        };
        let launch = |stream| HostCall { stream, ..call(kind::LAUNCH, 2, 50, 5) };
        assert!(before([wait.clone(), launch(7)]).awaits);
        assert!(!before([wait.clone(), launch(8)]).awaits);
        assert!(before([wait.clone(), launch(8), launch(7)]).awaits);
        assert!(!before([wait, launch(7), launch(7)]).awaits);
    }
}
