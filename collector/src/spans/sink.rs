//! The model's sink that makes spans, process by process.

use gputrace_wire::caller::Caller;
use rustc_hash::FxHashMap;

use crate::batch::{ProcessBegin, SessionBegin};
use crate::model::counted::CountedLaunches;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation};
use crate::model::sink::Sink;
use crate::spans::process::{ProcessSpans, SpanOutput};
use crate::spans::process_trace::{Family, ProcessTrace, Who};
use crate::spans::run::Runs;
use crate::spans::sampling::Sampling;
use crate::spans::span::SpanReceiver;

#[derive(Debug)]
pub struct SpanSink<R> {
    receiver: R,
    sampling: Sampling,
    processes: FxHashMap<u32, SpanProcess>,
    family: Family,
    runs: Runs,
}

#[derive(Debug)]
struct SpanProcess {
    who: Who,
    spans: ProcessSpans,
    /// Decided at the process's first event, when its environment is known.
    joined: Option<ProcessTrace>,
}

impl<R: SpanReceiver> SpanSink<R> {
    pub fn new(receiver: R, sampling: Sampling) -> SpanSink<R> {
        SpanSink {
            receiver,
            sampling,
            processes: FxHashMap::default(),
            family: Family::default(),
            runs: Runs::default(),
        }
    }

    /// Returns complaints about malformed variables, and the receiver.
    pub fn finish(mut self) -> (Vec<String>, R) {
        self.runs.finish(&mut self.receiver);
        (self.family.complaints().to_vec(), self.receiver)
    }

    pub fn receiver(&mut self) -> &mut R {
        &mut self.receiver
    }

    /// The end of a range that becomes a span only if something in it does, however long it was.
    pub fn range_ends_as_parent(&mut self, range: &RangeInstance, definitions: &Definitions) {
        self.with(range.process, definitions, |spans, to| spans.range_ends_as_parent(range, to));
    }

    #[inline]
    fn with(
        &mut self,
        process: u32,
        definitions: &Definitions,
        act: impl FnOnce(&mut ProcessSpans, &mut SpanOutput<'_, R>),
    ) {
        // Events after a process's end are ignored.
        let Some(running) = self.processes.get_mut(&process) else { return };
        let joined = match &running.joined {
            Some(joined) => joined,
            None => running.joined.insert(self.family.join(running.who, definitions)),
        };
        act(&mut running.spans, &mut SpanOutput { receiver: &mut self.receiver, definitions, joined });
    }
}

impl<R: SpanReceiver> Sink for SpanSink<R> {
    const JUDGES: bool = true;

    fn process_begins(&mut self, number: u32, process: &ProcessBegin, session: &SessionBegin) {
        let spans = ProcessSpans::new(number, process, session, self.sampling);
        let who = Who { session: spans.session, pid: process.pid, parent_pid: process.parent_pid };
        if let Some(handed) = self.family.begin(session) {
            self.runs.begin(session, handed);
        }
        self.family.add(who, spans.root());
        self.processes.insert(number, SpanProcess { who, spans, joined: None });
    }

    /// Joins the trace early: children may end before the first event of their parent.
    fn defines(&mut self, number: u32, definitions: &Definitions) {
        if let Some(SpanProcess { who, joined: None, .. }) = self.processes.get(&number) {
            self.family.join(*who, definitions);
        }
    }

    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        self.with(call.process, definitions, |spans, to| spans.host_call(call, to));
    }

    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        self.with(operation.process, definitions, |spans, to| spans.operation(operation, to));
    }

    fn counted(&mut self, launches: &CountedLaunches, definitions: &Definitions) {
        self.with(launches.process, definitions, |spans, _| spans.counted(launches.launches));
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
        // Before a process's first event its environment may not be known.
        if self.processes.get(&number).is_some_and(|running| running.joined.is_some()) {
            self.with(number, definitions, |spans, to| spans.time_passes(now_ns, to));
        }
    }

    fn process_ends(&mut self, number: u32, last_seen_ns: u64, definitions: &Definitions) {
        self.with(number, definitions, |_, _| {});
        let Some(SpanProcess { who, mut spans, joined: Some(joined) }) = self.processes.remove(&number)
        else {
            return;
        };
        let joined = self.family.under_parent(who, joined);
        let mut to = SpanOutput { receiver: &mut self.receiver, definitions, joined: &joined };
        spans.ends(last_seen_ns, &mut to);
        self.family.end(who, spans.root());
        let trace = (joined.trace_id, &joined.state);
        self.runs.process_ends(who.session, last_seen_ns, trace, definitions);
        self.receiver.process_ended(number, definitions);
    }
}
