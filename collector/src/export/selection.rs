//! Which events an export has: the filters and the interval that the user asked for.
//!
//! Each event is judged alone: if a kernel fits and the call that launched it does not, the export has only
//! the kernel. An event that lacks a property which a filter names does not fit that filter. Results are kept
//! for each definition, so that each name is matched only once.

use gputrace_wire::call::Detail;
use rustc_hash::FxHashMap;

use crate::batch::{DeviceSample, DeviceSamples};
use crate::export::within::Within;
use crate::export::{Event, Trace};
use crate::filter::{Condition, Filter, Property};
use crate::model::counted::CountedLaunches;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation, What};

/// The interval that an event must overlap, counted from [`Trace::begin_unix_ns`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Interval {
    pub from_ns: Option<u64>,
    pub to_ns: Option<u64>,
}

/// Takes an event if it overlaps the interval and at least one filter takes it. Without filters, the interval
/// alone decides.
#[derive(Default, Debug)]
pub struct Selection {
    filters: Vec<Vec<Numbered>>,
    interval: Interval,
    /// Whether a condition holds: by the condition's number, the process, and the id that it was checked on.
    known: FxHashMap<(u32, u32, u64), bool>,
    within: Within,
}

#[derive(Debug)]
struct Numbered {
    number: u32,
    condition: Condition,
}

/// The properties of one event that conditions and the interval are checked on.
#[derive(Clone, Copy, Default)]
struct Facts {
    process: u32,
    thread: Option<u32>,
    /// The stream's definition, and its number in device records; each is 0 if unknown.
    stream: Option<(u32, u32)>,
    device: Option<u32>,
    /// The definition of the kernel's name.
    kernel: Option<u32>,
    /// The node of the process's tree of ranges; 0 if there is none.
    ranges: u32,
    /// The range conditions that the ranges around the event fulfil, a bit each.
    within: u64,
    times: Option<(u64, u64)>,
}

impl Selection {
    /// `None` if there are more than 64 conditions: each has a bit in a `u64`.
    pub fn new(filters: Vec<Filter>, interval: Interval) -> Option<Selection> {
        if filters.iter().map(|filter| filter.0.len()).sum::<usize>() > u64::BITS as usize {
            return None;
        }
        let mut numbers = 0..;
        let mut numbered = |condition| Numbered { number: numbers.next().unwrap_or(u32::MAX), condition };
        let filters =
            filters.into_iter().map(|filter| filter.0.into_iter().map(&mut numbered).collect()).collect();
        Some(Selection { filters, interval, ..Selection::default() })
    }

    /// Whether everything is taken.
    pub fn is_everything(&self) -> bool {
        self.filters.is_empty() && self.interval == Interval::default()
    }

    pub(super) fn takes(&mut self, event: &Event<'_>, trace: &mut Trace<'_>) -> bool {
        if self.is_everything() {
            return true;
        }
        match event {
            Event::ProcessBegins { number, .. }
            | Event::Defines { number, .. }
            | Event::Caller { process: number, .. }
            | Event::ProcessEnds { number, .. } => self.takes_process(*number, trace),
            Event::Samples(samples) => self.samples(samples, trace).is_some(),
            Event::Call(call, definitions) => {
                let within = self.within.of_call(call);
                self.takes_facts(&Facts { within, ..Facts::of_call(call, definitions) }, trace)
            }
            Event::Operation(operation, definitions) => {
                let within = operation.call.as_ref().map_or(0, |call| self.within.of_call(call));
                self.takes_facts(&Facts { within, ..Facts::of_operation(operation, definitions) }, trace)
            }
            Event::Block(block) => {
                let thread = (block.thread != 0).then_some(block.thread);
                let times = Some((block.at_ns, block.at_ns));
                self.takes_facts(&Facts { process: block.process, thread, times, ..Facts::default() }, trace)
            }
            Event::RangeBegins(range, definitions) => {
                self.within.begins(range, own_bits(&self.filters, range, definitions));
                // The range's end is not known yet, so it is taken as after the begin of the interval.
                self.takes_range(range, u64::MAX, definitions, trace)
            }
            Event::Range(range, definitions) => {
                self.within.ends(range);
                self.takes_range(range, range.end_ns, definitions, trace)
            }
        }
    }

    /// Counted launches are taken together, where any of them may lie in the interval.
    pub(super) fn takes_counted(
        &mut self,
        launches: &CountedLaunches,
        definitions: &Definitions,
        trace: &mut Trace<'_>,
    ) -> bool {
        let record_id = definitions.stream(launches.stream).map_or(0, |stream| stream.record_id);
        let facts = Facts {
            process: launches.process,
            stream: (launches.stream != 0).then_some((launches.stream, record_id)),
            device: Some(launches.device),
            kernel: Some(launches.kernel.name),
            times: Some((launches.begin_ns, launches.end_ns)),
            ..Facts::default()
        };
        self.takes_facts(&facts, trace)
    }

    /// Of a device's samples those in the interval, if a filter takes the device: samples have a device and
    /// the processes that use it, and lack everything else.
    pub(super) fn samples(
        &mut self,
        samples: &DeviceSamples,
        trace: &mut Trace<'_>,
    ) -> Option<DeviceSamples> {
        let users: Vec<_> = trace.users_of(&samples.device).collect();
        let is_taken = self.filters.is_empty()
            || users.into_iter().any(|(process, ordinal)| {
                let facts = Facts { process, device: Some(ordinal), ..Facts::default() };
                self.fits_a_filter(&facts, trace)
            });
        if !is_taken {
            return None;
        }
        let is_in = |sample: &&DeviceSample| {
            let at_ns = trace.sample_unix_ns(sample.monotonic_ns).saturating_sub(trace.begin_unix_ns);
            self.interval.overlaps(at_ns, at_ns)
        };
        let kept: Vec<_> = samples.samples.iter().filter(is_in).copied().collect();
        (!kept.is_empty()).then(|| DeviceSamples { samples: kept, ..samples.clone() })
    }

    /// Whether the interval has begun at `ns` of a process.
    pub(super) fn has_begun(&self, process: u32, ns: u64, trace: &Trace<'_>) -> bool {
        let since_begin_ns = trace.unix_ns(process, ns).saturating_sub(trace.begin_unix_ns);
        since_begin_ns >= self.interval.from_ns.unwrap_or(0)
    }

    fn takes_range(
        &mut self,
        range: &RangeInstance,
        end_ns: u64,
        definitions: &Definitions,
        trace: &mut Trace<'_>,
    ) -> bool {
        let around = self.within.bits(range.process, range.around, range.start_ns);
        let within = around | own_bits(&self.filters, range, definitions);
        let thread = (range.thread != 0).then_some(range.thread);
        let times = Some((range.start_ns, end_ns));
        self.takes_facts(&Facts { process: range.process, thread, within, times, ..Facts::default() }, trace)
    }

    /// Whether any event of a process can be taken: its own conditions hold in at least one filter.
    fn takes_process(&mut self, process: u32, trace: &mut Trace<'_>) -> bool {
        let Selection { filters, known, .. } = self;
        let facts = Facts { process, ..Facts::default() };
        let mut of_process = |filter: &Vec<Numbered>| {
            let mut conditions =
                filter.iter().filter(|numbered| numbered.condition.property == Property::Process);
            conditions.all(|numbered| holds(numbered, &facts, known, trace))
        };
        filters.is_empty() || filters.iter().any(&mut of_process)
    }

    fn takes_facts(&mut self, facts: &Facts, trace: &mut Trace<'_>) -> bool {
        self.interval.has(facts, trace) && self.fits_a_filter(facts, trace)
    }

    /// Whether at least one filter takes it, or there are none.
    fn fits_a_filter(&mut self, facts: &Facts, trace: &mut Trace<'_>) -> bool {
        let Selection { filters, known, .. } = self;
        let mut fits =
            |filter: &Vec<Numbered>| filter.iter().all(|numbered| holds(numbered, facts, known, trace));
        filters.is_empty() || filters.iter().any(&mut fits)
    }
}

/// The conditions that a range's own name fulfils, a bit each.
fn own_bits(filters: &[Vec<Numbered>], range: &RangeInstance, definitions: &Definitions) -> u64 {
    let Some((domain, name)) = definitions.range(range.range) else { return 0 };
    let in_domain = format!("{domain}: {name}");
    let of_ranges =
        filters.iter().flatten().filter(|numbered| numbered.condition.property == Property::Range);
    of_ranges.fold(0, |bits, Numbered { number, condition }| {
        let fits = condition.glob.matches(name) || !domain.is_empty() && condition.glob.matches(&in_domain);
        bits | if fits { bit(*number) } else { 0 }
    })
}

fn bit(number: u32) -> u64 {
    1u64.checked_shl(number).unwrap_or(0)
}

impl Interval {
    fn has(self, facts: &Facts, trace: &Trace<'_>) -> bool {
        if self == Interval::default() {
            return true;
        }
        // An event without times cannot be compared with the interval, so it is left out.
        let Some((start_ns, end_ns)) = facts.times else { return false };
        let since_begin = |ns: u64| trace.unix_ns(facts.process, ns).saturating_sub(trace.begin_unix_ns);
        self.overlaps(since_begin(start_ns), since_begin(end_ns))
    }

    /// The same for times since the trace's begin.
    fn overlaps(self, start_ns: u64, end_ns: u64) -> bool {
        let from_ns = self.from_ns.unwrap_or(0);
        self.to_ns.is_none_or(|to_ns| start_ns < to_ns) && (end_ns > from_ns || start_ns >= from_ns)
    }
}

impl Facts {
    fn of_call(call: &HostCall, definitions: &Definitions) -> Facts {
        let stream = definitions.stream(call.stream);
        let kernel = match &call.detail {
            Detail::Launch(launch) => definitions.function(launch.function).map(|known| known.name_id),
            _ => None,
        };
        Facts {
            process: call.process,
            thread: Some(call.thread),
            stream: (call.stream != 0).then_some((call.stream, 0)),
            device: stream.and_then(|stream| definitions.ordinal_of_context(stream.context)),
            kernel,
            ranges: call.ranges,
            within: 0,
            times: Some((call.start_ns, call.start_ns.saturating_add(call.duration_ns))),
        }
    }

    fn of_operation(operation: &Operation, definitions: &Definitions) -> Facts {
        let call = operation.call.as_ref();
        let of_call = call.map(|call| Facts::of_call(call, definitions)).unwrap_or_default();
        let stream = (of_call.stream.map_or(0, |(stream, _)| stream), operation.stream);
        let timing = operation.timing;
        Facts {
            process: operation.process,
            stream: (stream != (0, 0)).then_some(stream),
            device: Some(operation.device),
            kernel: match operation.what {
                What::Kernel(kernel) => Some(kernel.name),
                _ => None,
            },
            times: timing
                .map(|timing| (timing.start_ns, timing.start_ns.saturating_add(timing.duration_ns)))
                .or(of_call.times),
            ..of_call
        }
    }
}

fn holds(
    numbered: &Numbered,
    facts: &Facts,
    known: &mut FxHashMap<(u32, u32, u64), bool>,
    trace: &mut Trace<'_>,
) -> bool {
    let Numbered { number, condition } = numbered;
    let about = match condition.property {
        Property::Process => Some(0),
        Property::Thread => facts.thread.map(u64::from),
        Property::Stream => {
            facts.stream.map(|(stream, in_records)| u64::from(stream) << 32 | u64::from(in_records))
        }
        Property::Device => facts.device.map(u64::from),
        Property::Kernel => facts.kernel.map(u64::from),
        Property::Range if facts.within & bit(*number) != 0 => return true,
        Property::Range => (facts.ranges != 0).then_some(u64::from(facts.ranges)),
    };
    let Some(about) = about else { return false };
    *known.entry((*number, facts.process, about)).or_insert_with(|| {
        texts(condition.property, facts, trace).iter().any(|text| condition.glob.matches(text))
    })
}

/// The texts that a glob may match: the property's number, if it has one, and the names that outputs show.
fn texts(property: Property, facts: &Facts, trace: &mut Trace<'_>) -> Vec<String> {
    let process = facts.process;
    let found = trace.process(process);
    match property {
        Property::Process => {
            let own_pid = found.and_then(|found| found.definitions.process()).map(|info| info.pid);
            let pids = [found.map(|found| found.begin.pid), own_pid];
            let pids = pids.into_iter().flatten().map(|pid| pid.to_string());
            pids.chain([
                trace.process_name(process).to_string(),
                trace.labels.processes.command(process).into(),
            ])
            .collect()
        }
        Property::Thread => {
            let id = facts.thread.unwrap_or(0);
            let tid =
                found.and_then(|found| found.definitions.thread(id)).map(|thread| thread.tid.to_string());
            tid.into_iter().chain([trace.thread_name(process, id).to_string()]).collect()
        }
        Property::Stream => {
            let (stream, in_records) = facts.stream.unwrap_or_default();
            let usual = trace.aggregates.streams.number(process, stream);
            let numbers = [usual, Some(in_records).filter(|number| *number != 0)];
            let name = (stream != 0).then(|| trace.stream_name(process, stream).to_owned());
            numbers.into_iter().flatten().map(|number| number.to_string()).chain(name).collect()
        }
        Property::Device => {
            let ordinal = facts.device.unwrap_or(0);
            vec![ordinal.to_string(), trace.device_name(process, ordinal).to_owned()]
        }
        Property::Kernel => {
            let name = trace.labels.kernels.name(process, facts.kernel.unwrap_or(0));
            vec![name.short.to_string(), name.full.to_string()]
        }
        Property::Range => {
            let names = found.map(|found| found.ranges.names(facts.ranges)).unwrap_or_default();
            names.into_iter().flat_map(|name| [name.name.to_string(), name.text()]).collect()
        }
    }
}
