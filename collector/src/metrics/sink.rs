//! The model's sink that makes metrics, process by process.

use gputrace_wire::caller::Caller;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use rustc_hash::FxHashMap;

use crate::batch::{ProcessBegin, SessionBegin};
use crate::metrics::process::ProcessMetrics;
use crate::metrics::settings::Settings;
use crate::model::ProcessSnapshot;
use crate::model::counted::CountedLaunches;
use crate::model::definitions::Definitions;
use crate::model::operation::{HostCall, Operation};
use crate::model::sink::Sink;
use crate::spans::otlp::resource_message;
use crate::spans::process_trace::{Family, Who};

/// Takes requests that are ready to be sent.
pub trait MetricsReceiver {
    fn metrics(&mut self, request: ExportMetricsServiceRequest);
}

impl<F: FnMut(ExportMetricsServiceRequest)> MetricsReceiver for F {
    fn metrics(&mut self, request: ExportMetricsServiceRequest) {
        self(request);
    }
}

#[derive(Debug)]
pub struct Metrics<R> {
    receiver: R,
    settings: Settings,
    processes: FxHashMap<u32, MetricsProcess>,
    family: Family,
}

#[derive(Debug)]
struct MetricsProcess {
    who: Who,
    metrics: ProcessMetrics,
    /// Known at the process's first event.
    trace_id: Option<u128>,
}

impl<R: MetricsReceiver> Metrics<R> {
    pub fn new(receiver: R, settings: Settings) -> Metrics<R> {
        Metrics { receiver, settings, processes: FxHashMap::default(), family: Family::default() }
    }

    /// Returns complaints about malformed variables, and the receiver.
    pub fn finish(self) -> (Vec<String>, R) {
        (self.family.complaints().to_vec(), self.receiver)
    }

    #[inline]
    fn with(&mut self, process: u32, definitions: &Definitions, act: impl FnOnce(&mut ProcessMetrics, u128)) {
        let Some(running) = self.processes.get_mut(&process) else { return };
        let trace_id = match running.trace_id {
            Some(known) => known,
            None => *running.trace_id.insert(self.family.join(running.who, definitions).trace_id),
        };
        act(&mut running.metrics, trace_id);
    }

    fn emit(&mut self, number: u32, at_ns: u64, definitions: &Definitions) {
        let Some(running) = self.processes.get_mut(&number) else { return };
        let Some(page) = running.metrics.emit(at_ns, &self.settings, definitions) else { return };
        let resource = resource_message(definitions, &self.settings.naming);
        page.requests(&resource).into_iter().for_each(|request| self.receiver.metrics(request));
    }
}

impl<R: MetricsReceiver> Sink for Metrics<R> {
    fn process_begins(&mut self, number: u32, process: &ProcessBegin, session: &SessionBegin) {
        let metrics = ProcessMetrics::new(process, session, &self.settings);
        let who = Who { session: metrics.session, pid: process.pid, parent_pid: process.parent_pid };
        self.family.begin(session);
        self.family.add(who, metrics.root());
        self.processes.insert(number, MetricsProcess { who, metrics, trace_id: None });
    }

    /// Joins the trace early: children may end before the first event of their parent.
    fn defines(&mut self, number: u32, definitions: &Definitions) {
        if let Some(MetricsProcess { who, trace_id: None, .. }) = self.processes.get(&number) {
            self.family.join(*who, definitions);
        }
    }

    fn caller(&mut self, process: u32, number: u32, caller: &Caller, _: &Definitions) {
        if let Some(running) = self.processes.get_mut(&process) {
            running.metrics.caller(number, caller);
        }
    }

    #[inline]
    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        self.with(call.process, definitions, |metrics, trace_id| {
            metrics.host_call(call, trace_id, definitions)
        });
    }

    #[inline]
    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        self.with(operation.process, definitions, |metrics, trace_id| {
            metrics.operation(operation, trace_id, definitions);
        });
    }

    fn counted(&mut self, launches: &CountedLaunches, definitions: &Definitions) {
        self.with(launches.process, definitions, |metrics, _| metrics.counted(launches));
    }

    fn snapshot(&mut self, number: u32, snapshot: &ProcessSnapshot<'_>, definitions: &Definitions) {
        let is_due =
            self.processes.get_mut(&number).is_some_and(|running| running.metrics.take_snapshot(snapshot));
        if is_due {
            self.emit(number, snapshot.at_ns, definitions);
        }
    }

    /// Emits the metrics of an idle process too.
    fn time_passes(&mut self, number: u32, now_ns: u64, definitions: &Definitions) {
        if self.processes.get(&number).is_some_and(|running| running.metrics.is_due(now_ns)) {
            self.emit(number, now_ns, definitions);
        }
    }

    /// Emits what was added since metrics were last emitted.
    fn process_ends(&mut self, number: u32, last_seen_ns: u64, definitions: &Definitions) {
        self.emit(number, last_seen_ns, definitions);
        if let Some(MetricsProcess { who, metrics, .. }) = self.processes.remove(&number) {
            self.family.end(who, metrics.root());
        }
    }
}
