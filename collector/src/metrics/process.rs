//! One process's metrics: the sums since it began, and when they are next emitted.

use std::collections::BTreeMap;

use gputrace_wire::call::{Detail, operation, wait};
use gputrace_wire::caller::Caller;
use gputrace_wire::cell::{flag, kind};
use gputrace_wire::counter::Counter;

use crate::aggregate::{CallClass, RunningMeans};
use crate::batch::{ProcessBegin, SessionBegin};
use crate::failed_calls::{self, Category, has_failed};
use crate::memory::REGISTERED;
use crate::metrics::device::{DEVICES_MAX, DeviceMetrics};
use crate::metrics::instruments as i;
use crate::metrics::kernels::TopKernels;
use crate::metrics::memory::MemoryUse;
use crate::metrics::page::{Distribution, Exemplar, Page};
use crate::metrics::settings::Settings;
use crate::metrics::total::Total;
use crate::model::ProcessSnapshot;
use crate::model::callers::Callers;
use crate::model::counted::CountedLaunches;
use crate::model::definitions::Definitions;
use crate::model::operation::{HostCall, Operation, Timing, What};
use crate::spans::ids::{Of, ProcessSeed, SessionSeed};
use crate::spans::sampling::Sampling;
use crate::spans::span::Value;

const CLASSES: [CallClass; 11] = [
    CallClass::Launch,
    CallClass::GraphLaunch,
    CallClass::Copy,
    CallClass::Fill,
    CallClass::Wait,
    CallClass::StreamWait,
    CallClass::ModuleLoad,
    CallClass::Alloc,
    CallClass::Free,
    CallClass::Graph,
    CallClass::Other,
];

/// What the host waits for, and the instrument that counts the waits.
const WAITS: [(&str, i::Instrument); 3] =
    [("stream", i::STREAM_WAITS), ("event", i::EVENT_WAITS), ("context", i::DEVICE_WAITS)];

/// The most types of errors with points of their own; the others share one.
const ERRORS_MAX: usize = 64;
const OTHER_ERRORS: (&str, &str) = ("_OTHER", "other");

/// By name and category.
type Errors = BTreeMap<(&'static str, &'static str), Total<u64>>;

#[derive(Debug)]
pub struct ProcessMetrics {
    pub session: SessionSeed,
    seed: ProcessSeed,
    realtime_less_monotonic_ns: i128,
    start_ns: u64,
    /// When metrics were last emitted, and when they are next due, on CLOCK_MONOTONIC.
    emitted_ns: u64,
    due_ns: u64,
    /// Whether anything was added since.
    has_changed: bool,
    sampling: Sampling,
    /// Operations so far; spans are numbered by it too.
    operations: u64,
    callers: Callers,
    launches: Total<u64>,
    graph_launches: Total<u64>,
    calls: [Distribution; CLASSES.len()],
    waits: [(Total<u64>, Distribution); WAITS.len()],
    events_recorded: Total<u64>,
    memory: MemoryUse,
    errors: Errors,
    devices: Vec<DeviceMetrics>,
    kernels: Option<TopKernels>,
    /// Only where a part of the operations has device times.
    means: Option<Box<RunningMeans>>,
    dropped: BTreeMap<&'static str, Total<u64>>,
    hooked: Total<u64>,
    hook_seconds: Total<f64>,
    records: Total<u64>,
    record_seconds: Total<f64>,
    waited_seconds: Total<f64>,
}

impl ProcessMetrics {
    pub fn new(process: &ProcessBegin, session: &SessionBegin, settings: &Settings) -> ProcessMetrics {
        let session_seed = SessionSeed::new(session);
        let start_ns = process.start_monotonic_ns;
        ProcessMetrics {
            session: session_seed,
            seed: session_seed.process(process),
            realtime_less_monotonic_ns: i128::from(session.realtime_ns) - i128::from(session.monotonic_ns),
            start_ns,
            emitted_ns: start_ns,
            due_ns: start_ns.saturating_add(settings.interval_ns),
            has_changed: false,
            sampling: settings.sampling,
            operations: 0,
            callers: Callers::default(),
            launches: Total::default(),
            graph_launches: Total::default(),
            calls: std::array::from_fn(|_| Distribution::seconds()),
            waits: std::array::from_fn(|_| (Total::default(), Distribution::seconds())),
            events_recorded: Total::default(),
            memory: MemoryUse::default(),
            errors: BTreeMap::new(),
            devices: Vec::new(),
            kernels: TopKernels::new(settings.kernels),
            means: None,
            dropped: BTreeMap::new(),
            hooked: Total::default(),
            hook_seconds: Total::default(),
            records: Total::default(),
            record_seconds: Total::default(),
            waited_seconds: Total::default(),
        }
    }

    pub fn caller(&mut self, number: u32, caller: &Caller) {
        self.callers.learn(number, caller);
    }

    /// The process's own span.
    pub fn root(&self) -> u64 {
        self.seed.span(Of::Process, 0, 0)
    }

    #[inline]
    pub fn host_call(&mut self, call: &HostCall, trace_id: u128, definitions: &Definitions) {
        self.has_changed = true;
        let (seed, callers, duration_ns) = (self.seed, &self.callers, call.duration_ns);
        let end_ns = call.start_ns.saturating_add(duration_ns);
        let failed = has_failed(call, definitions);
        let is_span = failed || self.sampling.is_candidate(duration_ns);
        let exemplar = || {
            let thread = u64::from(call.thread) << 32 | u64::from(call.correlation);
            let span_id = seed.span(Of::Call, call.start_ticks, thread);
            let trace_id = trace_of(callers, call.caller).unwrap_or(trace_id);
            Exemplar { value: duration_ns, at_ns: end_ns, trace_id, span_id }
        };
        let class = CallClass::of(call);
        if let Some(calls) = self.calls.get_mut(class as usize) {
            calls.add_span(duration_ns, is_span, exemplar);
        }
        if failed {
            count_error(&mut self.errors, call, definitions);
        }
        match &call.detail {
            Detail::Wait { what, .. } if class == CallClass::Wait => {
                let at = match *what {
                    wait::STREAM => 0,
                    wait::EVENT => 1,
                    _ => 2,
                };
                if let Some((calls, durations)) = self.waits.get_mut(at) {
                    calls.add(1);
                    durations.add_span(duration_ns, is_span, exemplar);
                }
            }
            Detail::Other { operation: operation::RECORD, .. } => self.events_recorded.add(1),
            _ => {}
        }
        if call.status != 0 || call.flags & flag::CAPTURED != 0 {
            return;
        }
        match (call.kind, &call.detail) {
            (kind::LAUNCH, _) => self.launches.add(1),
            (kind::GRAPH_LAUNCH, _) => self.graph_launches.add(1),
            _ => _ = self.memory.follow(call, definitions),
        }
    }

    #[inline]
    pub fn operation(&mut self, operation: &Operation, trace_id: u128, definitions: &Definitions) {
        self.has_changed = true;
        self.operations += 1;
        let (seed, callers, number) = (self.seed, &self.callers, self.operations);
        let at = index_of(&mut self.devices, operation.device);
        let Some(device) = self.devices.get_mut(at) else { return };
        if RunningMeans::concerns(operation)
            && let Some(ns) = self.means.get_or_insert_default().operation(operation)
        {
            device.estimated.add(ns / 1e9);
        }
        let timing = operation.timing;
        let Timing { start_ns, duration_ns } = timing.unwrap_or(Timing { start_ns: 0, duration_ns: 0 });
        let is_span = self.sampling.is_candidate(duration_ns);
        let exemplar_of = |value| Exemplar {
            value,
            at_ns: start_ns.saturating_add(duration_ns),
            trace_id: operation
                .call
                .as_ref()
                .and_then(|call| trace_of(callers, call.caller))
                .unwrap_or(trace_id),
            span_id: seed.span(Of::Operation, number, 0),
        };
        let exemplar = || exemplar_of(duration_ns);
        let is_timed = timing.is_some();
        match operation.what {
            What::Kernel(kernel) => {
                device.kernels.add(1);
                if !is_timed {
                    return;
                }
                if let Some(call) = &operation.call {
                    let launched_ns = call.start_ns.saturating_add(call.duration_ns);
                    let queued_ns = start_ns.saturating_sub(launched_ns);
                    device.queue.add_span(queued_ns, is_span, || exemplar_of(queued_ns));
                }
                match &mut self.kernels {
                    Some(kernels) => {
                        kernels.add(at, kernel.name, duration_ns, is_span, exemplar, definitions)
                    }
                    None => device.durations.add_span(duration_ns, is_span, exemplar),
                }
            }
            What::Copy { direction, bytes, .. } => {
                let Some(copies) = device.copies(direction) else { return };
                copies.sizes.add_span(bytes, is_timed && is_span, || exemplar_of(bytes));
                if is_timed {
                    copies.durations.add_span(duration_ns, is_span, exemplar);
                }
            }
            What::Fill { bytes } => {
                device.filled.add(bytes);
                if is_timed {
                    device.fills.add_span(duration_ns, is_span, exemplar);
                }
            }
            What::Graph if is_timed => device.graphs.add_span(duration_ns, is_span, exemplar),
            What::Graph => {}
        }
    }

    pub fn counted(&mut self, counted: &CountedLaunches) {
        self.has_changed = true;
        self.launches.add(counted.launches);
        let at = index_of(&mut self.devices, counted.device);
        let Some(device) = self.devices.get_mut(at) else { return };
        device.kernels.add(counted.launches);
        if let Some(ns) = self.means.get_or_insert_default().counted(counted) {
            device.estimated.add(ns / 1e9);
        }
    }

    /// Sets totals that are kept elsewhere. Returns whether metrics are due.
    pub fn take_snapshot(&mut self, snapshot: &ProcessSnapshot<'_>) -> bool {
        self.has_changed = true;
        for (reason, count) in snapshot.lost() {
            self.dropped.entry(reason).or_default().set(count);
        }
        self.hooked.set(snapshot.counts.host_calls());
        self.hook_seconds.set(snapshot.hooks_ns() / 1e9);
        self.records.set(snapshot.counter(Counter::RecordsDelivered));
        let record_ticks = snapshot.counter(Counter::RecordTicks);
        self.record_seconds.set(record_ticks as f64 * snapshot.ns_per_tick / 1e9);
        self.waited_seconds.set(snapshot.counter(Counter::WaitedNs) as f64 / 1e9);
        self.is_due(snapshot.at_ns)
    }

    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// The metrics at a moment on CLOCK_MONOTONIC; `None` if nothing was added since they were last emitted.
    pub fn emit(&mut self, at_ns: u64, settings: &Settings, definitions: &Definitions) -> Option<Page> {
        if !std::mem::take(&mut self.has_changed) {
            return None;
        }
        // Two points of one series must not have the same time.
        let now_ns = at_ns.max(self.emitted_ns.saturating_add(1));
        let times = [self.start_ns, self.emitted_ns, now_ns];
        let mut page = Page::new(settings.preference, times, self.realtime_less_monotonic_ns);
        self.emitted_ns = now_ns;
        let passed = now_ns.saturating_sub(self.start_ns) / settings.interval_ns.max(1);
        self.due_ns = self.start_ns.saturating_add((passed + 1).saturating_mul(settings.interval_ns.max(1)));

        page.count(&i::LAUNCHES, &[], &mut self.launches);
        page.count(&i::GRAPH_LAUNCHES, &[], &mut self.graph_launches);
        self.emit_devices(definitions, &mut page);
        self.emit_memory(&mut page);
        for ((what, instrument), (calls, durations)) in WAITS.iter().zip(&mut self.waits) {
            page.count(instrument, &[], calls);
            page.histogram(&i::WAIT_DURATION, &[("gpu.sync.waited_for", Value::text(what))], durations);
        }
        page.count(&i::EVENTS_RECORDED, &[], &mut self.events_recorded);
        for (class, calls) in CLASSES.into_iter().zip(&mut self.calls) {
            page.histogram(&i::CALL_DURATION, &[("gpu.call.class", Value::text(class.name()))], calls);
        }
        for ((name, category), errors) in &mut self.errors {
            let attributes =
                [("error.type", Value::text(name)), ("gpu.error.category", Value::text(category))];
            page.count(&i::ERRORS, &attributes, errors);
        }
        for (reason, dropped) in &mut self.dropped {
            page.count(&i::DROPPED, &[("gputrace.reason", Value::text(reason))], dropped);
        }
        page.count(&i::HOOKED, &[], &mut self.hooked);
        page.time(&i::HOOK_TIME, &[], &mut self.hook_seconds);
        page.count(&i::RECORDS, &[], &mut self.records);
        page.time(&i::RECORD_TIME, &[], &mut self.record_seconds);
        page.time(&i::WAITED_TIME, &[], &mut self.waited_seconds);
        Some(page)
    }

    fn emit_devices(&mut self, definitions: &Definitions, page: &mut Page) {
        let by_name = self.kernels.is_some();
        for device in &mut self.devices {
            device.emit(!by_name, definitions, page);
        }
        if let Some(kernels) = &mut self.kernels {
            let marks: Vec<_> = self.devices.iter().map(|device| device.attributes(definitions)).collect();
            let temporality = page.temporality(&i::KERNEL_DURATION);
            kernels.emit(temporality, definitions, |device, name, of| {
                let mut attributes = marks.get(device).cloned().unwrap_or_default();
                attributes.push(("gpu.kernel", Value::text(name)));
                page.histogram(&i::KERNEL_DURATION, &attributes, of);
            });
        }
    }

    fn emit_memory(&mut self, page: &mut Page) {
        let is_known = self.memory.is_known();
        for (name, kind) in self.memory.kinds() {
            if name == REGISTERED {
                page.count(&i::REGISTERED, &[], &mut kind.allocated);
                continue;
            }
            let attributes = [("gpu.memory.kind", Value::text(name))];
            page.count(&i::ALLOCATED, &attributes, &mut kind.allocated);
            page.count(&i::ALLOCATIONS, &attributes, &mut kind.calls);
            page.count(&i::FREED, &attributes, &mut kind.freed);
            if let Some(bytes) = kind.in_use().filter(|_| is_known) {
                page.level(&i::IN_USE, &attributes, bytes);
            }
        }
        for pool in self.memory.pools() {
            let attributes = [("gpu.memory.pool", Value::text(&pool.name))];
            if is_known {
                page.level(&i::POOL_IN_USE, &attributes, pool.in_use);
            }
            if let Some(bytes) = pool.reserved {
                page.level(&i::POOL_RESERVED, &attributes, bytes);
            }
        }
        if !is_known {
            self.dropped.entry("allocations_untracked").or_default().set(self.memory.forgotten);
        }
    }
}

/// Index of the device with that ordinal.
#[inline]
fn index_of(devices: &mut Vec<DeviceMetrics>, ordinal: u32) -> usize {
    let known = devices.iter().position(|device| device.ordinal == Some(ordinal));
    known.unwrap_or_else(|| {
        match devices.len() {
            0..DEVICES_MAX => devices.push(DeviceMetrics::new(Some(ordinal))),
            DEVICES_MAX => devices.push(DeviceMetrics::new(None)),
            _ => {}
        }
        devices.len() - 1
    })
}

/// The trace of the active span of another tracer, if there is one.
fn trace_of(callers: &Callers, caller: u32) -> Option<u128> {
    let [lower, upper] = callers.get(caller)?.trace;
    Some(u128::from(upper) << 64 | u128::from(lower))
}

#[cold]
fn count_error(errors: &mut Errors, call: &HostCall, definitions: &Definitions) {
    let error = (failed_calls::name(call.status), Category::of(call, definitions).name());
    let is_known = errors.len() < ERRORS_MAX || errors.contains_key(&error);
    errors.entry(if is_known { error } else { OTHER_ERRORS }).or_default().add(1);
}
