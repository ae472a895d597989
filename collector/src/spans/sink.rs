//! The model's stream of facts as spans, by process.

use gputrace_wire::caller::Caller;
use rustc_hash::FxHashMap;

use crate::batch::{ProcessBegin, SessionBegin};
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation};
use crate::model::sink::Sink;
use crate::spans::joined::{Family, Joined, Who};
use crate::spans::process::{ProcessSpans, Teller};
use crate::spans::run::Runs;
use crate::spans::sampling::Sampling;
use crate::spans::span::Receiver;

#[derive(Debug)]
pub struct Spans<R> {
    receiver: R,
    sampling: Sampling,
    processes: FxHashMap<u32, Running>,
    family: Family,
    runs: Runs,
}

#[derive(Debug)]
struct Running {
    who: Who,
    spans: ProcessSpans,
    /// Decided when something first comes of it: what it was given is known by then.
    joined: Option<Joined>,
}

impl<R: Receiver> Spans<R> {
    pub fn new(receiver: R, sampling: Sampling) -> Spans<R> {
        Spans {
            receiver,
            sampling,
            processes: FxHashMap::default(),
            family: Family::default(),
            runs: Runs::default(),
        }
    }

    /// What was malformed, once each, and whoever took the spans.
    pub fn finish(mut self) -> (Vec<String>, R) {
        self.runs.finish(&mut self.receiver);
        (self.family.complaints().to_vec(), self.receiver)
    }

    #[inline]
    fn with(
        &mut self,
        process: u32,
        definitions: &Definitions,
        act: impl FnOnce(&mut ProcessSpans, &mut Teller<'_, R>),
    ) {
        // What comes of a process after its end comes of no process that there is.
        let Some(running) = self.processes.get_mut(&process) else { return };
        let joined = match &running.joined {
            Some(joined) => joined,
            None => running.joined.insert(self.family.join(running.who, definitions)),
        };
        act(&mut running.spans, &mut Teller { receiver: &mut self.receiver, definitions, joined });
    }
}

impl<R: Receiver> Sink for Spans<R> {
    const JUDGES: bool = true;

    fn process_begins(&mut self, number: u32, process: &ProcessBegin, session: &SessionBegin) {
        let spans = ProcessSpans::new(number, process, session, self.sampling);
        let who = Who { session: spans.session, pid: process.pid, parent_pid: process.parent_pid };
        if let Some(handed) = self.family.begin(session) {
            self.runs.begin(session, handed);
        }
        self.family.add(who, spans.root());
        self.processes.insert(number, Running { who, spans, joined: None });
    }

    /// Its children may be done before anything but its definitions has come.
    fn defines(&mut self, number: u32, definitions: &Definitions) {
        if let Some(Running { who, joined: None, .. }) = self.processes.get(&number) {
            self.family.join(*who, definitions);
        }
    }

    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        self.with(call.process, definitions, |spans, to| spans.host_call(call, to));
    }

    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        self.with(operation.process, definitions, |spans, to| spans.operation(operation, to));
    }

    fn caller(&mut self, process: u32, number: u32, caller: &Caller, _: &Definitions) {
        if let Some(running) = self.processes.get_mut(&process) {
            running.spans.caller(number, caller);
        }
    }

    fn range_begins(&mut self, range: &RangeInstance, definitions: &Definitions) {
        self.with(range.process, definitions, |spans, _| spans.range_begins(range));
    }

    fn range_ends(&mut self, range: &RangeInstance, definitions: &Definitions) {
        self.with(range.process, definitions, |spans, to| spans.range_ends(range, to));
    }

    fn time_passes(&mut self, number: u32, now_ns: u64, definitions: &Definitions) {
        // Before anything has come of it, it may not be known yet what it was given.
        if self.processes.get(&number).is_some_and(|running| running.joined.is_some()) {
            self.with(number, definitions, |spans, to| spans.time_passes(now_ns, to));
        }
    }

    fn process_ends(&mut self, number: u32, last_seen_ns: u64, definitions: &Definitions) {
        self.with(number, definitions, |_, _| {});
        let Some(Running { who, mut spans, joined: Some(joined) }) = self.processes.remove(&number) else {
            return;
        };
        let joined = self.family.under_parent(who, joined);
        let mut to = Teller { receiver: &mut self.receiver, definitions, joined: &joined };
        spans.ends(last_seen_ns, &mut to);
        self.family.end(who, spans.root());
        let trace = (joined.trace_id, &joined.state);
        self.runs.process_ends(who.session, last_seen_ns, trace, definitions);
        self.receiver.process_ended(number, definitions);
    }
}
