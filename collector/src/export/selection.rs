//! Which events an export has: the filters and the interval that the user asked for.
//!
//! Each event is decided by itself: a kernel is in without the call that launched it, if only the kernel fits, and
//! an event without the property that a filter names is out. Answers are kept by definition, so a name is matched
//! once.

use std::collections::VecDeque;

use gputrace_wire::call::Detail;
use rustc_hash::FxHashMap;

use crate::export::{Event, Trace};
use crate::filter::{Condition, Filter, Key};
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation, What};

/// Ranges whose conditions are kept after their end, for the operations that were launched in them.
const ENDED_MAX: usize = 1 << 16;

/// The interval that an event must overlap, counted from [`Trace::begin_unix_ns`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Window {
    pub from_ns: Option<u64>,
    pub to_ns: Option<u64>,
}

/// All filters together take what any of them takes; none takes everything.
#[derive(Default, Debug)]
pub struct Selection {
    filters: Vec<Vec<Numbered>>,
    window: Window,
    /// By condition, process, and what it was asked about.
    known: FxHashMap<(u32, u32, u64), bool>,
    /// By process and number of a range: the conditions that it or one around it fulfils, a bit each.
    ranges: FxHashMap<(u32, u32), u64>,
    /// Those of them that ended, the oldest first.
    ended: VecDeque<(u32, u32)>,
}

#[derive(Debug)]
struct Numbered {
    number: u32,
    condition: Condition,
}

/// What conditions ask about.
#[derive(Clone, Copy, Default)]
struct Subject {
    process: u32,
    thread: Option<u32>,
    /// Definition, and number in device records; 0 if unknown.
    stream: Option<(u32, u32)>,
    device: Option<u32>,
    /// Name definition.
    kernel: Option<u32>,
    /// Node of the process's ranges.
    ranges: u32,
    /// The conditions on ranges that the ranges around it fulfil.
    within: u64,
    times: Option<(u64, u64)>,
}

impl Selection {
    /// `None` if there are more than 64 conditions.
    pub fn new(filters: Vec<Filter>, window: Window) -> Option<Selection> {
        if filters.iter().map(|filter| filter.0.len()).sum::<usize>() > u64::BITS as usize {
            return None;
        }
        let mut numbers = 0..;
        let mut numbered = |condition| Numbered { number: numbers.next().unwrap_or(u32::MAX), condition };
        let filters =
            filters.into_iter().map(|filter| filter.0.into_iter().map(&mut numbered).collect()).collect();
        Some(Selection { filters, window, ..Selection::default() })
    }

    /// Whether everything is taken.
    pub fn is_everything(&self) -> bool {
        self.filters.is_empty() && self.window == Window::default()
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
            Event::Call(call, definitions) => {
                let within = self.within(call.process, call.range);
                self.takes_subject(&Subject { within, ..Subject::of_call(call, definitions) }, trace)
            }
            Event::Operation(operation, definitions) => {
                let within = operation.call.as_ref().map_or(0, |call| self.within(call.process, call.range));
                self.takes_subject(
                    &Subject { within, ..Subject::of_operation(operation, definitions) },
                    trace,
                )
            }
            Event::RangeBegins(range, definitions) => {
                let within = self.fulfilled_by(range, definitions);
                if within != 0 {
                    self.ranges.insert((range.process, range.number), within);
                }
                // Its end is not known, and counts as after the interval's begin.
                let times = Some((range.start_ns, u64::MAX));
                self.takes_subject(&Subject::of_range(range, within, times), trace)
            }
            Event::Range(range, definitions) => {
                let within = self.fulfilled_by(range, definitions);
                self.ended.push_back((range.process, range.number));
                if self.ended.len() > ENDED_MAX
                    && let Some(oldest) = self.ended.pop_front()
                {
                    self.ranges.remove(&oldest);
                }
                let times = Some((range.start_ns, range.end_ns));
                self.takes_subject(&Subject::of_range(range, within, times), trace)
            }
        }
    }

    /// Whether anything of a process can be taken.
    fn takes_process(&mut self, process: u32, trace: &mut Trace<'_>) -> bool {
        let Selection { filters, known, .. } = self;
        let subject = Subject { process, ..Subject::default() };
        let mut of_process = |filter: &Vec<Numbered>| {
            let mut conditions = filter.iter().filter(|numbered| numbered.condition.key == Key::Process);
            conditions.all(|numbered| holds(numbered, &subject, known, trace))
        };
        filters.is_empty() || filters.iter().any(&mut of_process)
    }

    fn takes_subject(&mut self, subject: &Subject, trace: &mut Trace<'_>) -> bool {
        if !self.window.has(subject, trace) {
            return false;
        }
        let Selection { filters, known, .. } = self;
        let mut fits =
            |filter: &Vec<Numbered>| filter.iter().all(|numbered| holds(numbered, subject, known, trace));
        filters.is_empty() || filters.iter().any(&mut fits)
    }

    fn within(&self, process: u32, range: u32) -> u64 {
        self.ranges.get(&(process, range)).copied().unwrap_or(0)
    }

    /// The conditions on ranges that a range or one around it fulfils.
    fn fulfilled_by(&self, range: &RangeInstance, definitions: &Definitions) -> u64 {
        let mut bits = self.within(range.process, range.around);
        let Some((domain, name)) = definitions.range(range.range) else { return bits };
        let in_domain = format!("{domain}: {name}");
        let conditions =
            self.filters.iter().flatten().filter(|numbered| numbered.condition.key == Key::Range);
        for Numbered { number, condition } in conditions {
            if condition.glob.matches(name) || !domain.is_empty() && condition.glob.matches(&in_domain) {
                bits |= bit(*number);
            }
        }
        bits
    }
}

fn bit(number: u32) -> u64 {
    1u64.checked_shl(number).unwrap_or(0)
}

impl Window {
    fn has(self, subject: &Subject, trace: &Trace<'_>) -> bool {
        if self == Window::default() {
            return true;
        }
        // Without times there is no telling.
        let Some((start_ns, end_ns)) = subject.times else { return false };
        let since_begin = |ns: u64| trace.unix_ns(subject.process, ns).saturating_sub(trace.begin_unix_ns);
        let (start_ns, end_ns) = (since_begin(start_ns), since_begin(end_ns));
        let from_ns = self.from_ns.unwrap_or(0);
        self.to_ns.is_none_or(|to_ns| start_ns < to_ns) && (end_ns > from_ns || start_ns >= from_ns)
    }
}

impl Subject {
    fn of_call(call: &HostCall, definitions: &Definitions) -> Subject {
        let stream = definitions.stream(call.stream);
        let kernel = match &call.detail {
            Detail::Launch(launch) => definitions.function(launch.function).map(|known| known.name_id),
            _ => None,
        };
        Subject {
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

    fn of_operation(operation: &Operation, definitions: &Definitions) -> Subject {
        let call = operation.call.as_ref();
        let of_call = call.map(|call| Subject::of_call(call, definitions)).unwrap_or_default();
        let stream = (of_call.stream.map_or(0, |(stream, _)| stream), operation.stream);
        let timing = operation.timing;
        Subject {
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

    fn of_range(range: &RangeInstance, within: u64, times: Option<(u64, u64)>) -> Subject {
        let thread = (range.thread != 0).then_some(range.thread);
        Subject { process: range.process, thread, within, times, ..Subject::default() }
    }
}

fn holds(
    numbered: &Numbered,
    subject: &Subject,
    known: &mut FxHashMap<(u32, u32, u64), bool>,
    trace: &mut Trace<'_>,
) -> bool {
    let Numbered { number, condition } = numbered;
    let about = match condition.key {
        Key::Process => Some(0),
        Key::Thread => subject.thread.map(u64::from),
        Key::Stream => {
            subject.stream.map(|(stream, in_records)| u64::from(stream) << 32 | u64::from(in_records))
        }
        Key::Device => subject.device.map(u64::from),
        Key::Kernel => subject.kernel.map(u64::from),
        Key::Range if subject.within & bit(*number) != 0 => return true,
        Key::Range => (subject.ranges != 0).then_some(u64::from(subject.ranges)),
    };
    let Some(about) = about else { return false };
    *known.entry((*number, subject.process, about)).or_insert_with(|| {
        texts(condition.key, subject, trace).iter().any(|text| condition.glob.matches(text))
    })
}

/// What outputs show for a key, and the number.
fn texts(key: Key, subject: &Subject, trace: &mut Trace<'_>) -> Vec<String> {
    let process = subject.process;
    let found = trace.process(process);
    match key {
        Key::Process => {
            let own_pid = found.and_then(|found| found.definitions.process()).map(|info| info.pid);
            let pids = [found.map(|found| found.begin.pid), own_pid];
            let pids = pids.into_iter().flatten().map(|pid| pid.to_string());
            pids.chain([
                trace.process_name(process).to_string(),
                trace.labels.processes.command(process).into(),
            ])
            .collect()
        }
        Key::Thread => {
            let id = subject.thread.unwrap_or(0);
            let tid =
                found.and_then(|found| found.definitions.thread(id)).map(|thread| thread.tid.to_string());
            tid.into_iter().chain([trace.thread_name(process, id).to_string()]).collect()
        }
        Key::Stream => {
            let (stream, in_records) = subject.stream.unwrap_or_default();
            let usual = trace.aggregates.streams.number(process, stream);
            let numbers = [usual, Some(in_records).filter(|number| *number != 0)];
            let name = (stream != 0).then(|| trace.stream_name(process, stream).to_owned());
            numbers.into_iter().flatten().map(|number| number.to_string()).chain(name).collect()
        }
        Key::Device => {
            let ordinal = subject.device.unwrap_or(0);
            vec![ordinal.to_string(), trace.device_name(process, ordinal).to_owned()]
        }
        Key::Kernel => {
            let name = trace.labels.kernels.name(process, subject.kernel.unwrap_or(0));
            vec![name.short.to_string(), name.full.to_string()]
        }
        Key::Range => {
            let names = found.map(|found| found.ranges.names(subject.ranges)).unwrap_or_default();
            names.into_iter().flat_map(|name| [name.name.to_string(), name.text()]).collect()
        }
    }
}
