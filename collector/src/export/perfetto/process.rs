//! The tracks of one process: threads, ranges, devices with their streams, counters.

use std::io;

use gputrace_wire::call::Detail;
use gputrace_wire::cell::{flag, kind};
use rustc_hash::FxHashMap;

use crate::export::Trace;
use crate::export::memory_counters::{MemoryCounter, MemoryCounters, MemoryValue};
use crate::export::perfetto::sequence::{
    AnnotationKey, AnnotationText, EventCategory, EventFields, EventType, Name,
};
use crate::export::perfetto::steps::Steps;
use crate::export::perfetto::streams::{StreamTrack, category_of, execution_of};
use crate::export::perfetto::threads::{Apart, ThreadTrack};
use crate::export::perfetto::tracks::{CounterUnit, SystemIds, Tracks, rank};
use crate::failed_calls;
use crate::model::RangeName;
use crate::model::callers::Callers;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{Direction, HostCall, Operation, What};
use crate::names::fold_safe;

/// The queue's depth is written at multiples of this.
const DEPTH_GRID_NS: u64 = 100_000;
/// Streams with tracks of their own; a server may have one a request. Further ones share one.
const STREAMS_MAX: usize = 1 << 12;
/// The shared one.
const MORE_STREAMS: (u32, u32, u32) = (u32::MAX, u32::MAX, u32::MAX);

/// What a counter counts, by device ordinal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Counted {
    Queue(u32),
    Copies(u32, Direction),
}

#[derive(Debug)]
pub struct ProcessTracks {
    number: u32,
    pid: u32,
    /// The id that its main thread has in the system.
    own_pid: u32,
    track: u64,
    main_is_known: bool,
    threads: FxHashMap<u32, ThreadTrack>,
    /// Ranges that are begun and ended by number: they need not nest.
    ranges: Option<Apart>,
    devices: FxHashMap<u32, u64>,
    /// By device ordinal, context, and the stream's number in device records.
    streams: FxHashMap<(u32, u32, u32), StreamTrack>,
    counters: FxHashMap<Counted, Steps>,
    memory: FxHashMap<MemoryCounter, u64>,
    callers: Callers,
    untimed: Option<u64>,
    /// Operations of which neither a time nor a call is known.
    unknown: u64,
    /// Slices without a row, since there were too many at the same time.
    crowded: u64,
}

/// The order of the counters of memory: in all, by kind, pools, lines.
fn rank_of_memory(counter: MemoryCounter) -> u64 {
    match counter {
        MemoryCounter::Held => 0,
        MemoryCounter::Kind(kind) => 1 + kind as u64,
        MemoryCounter::PoolUsed(pool) => 100 + 2 * u64::from(pool),
        MemoryCounter::PoolReserved(pool) => 101 + 2 * u64::from(pool),
        MemoryCounter::Line(line) => 10_000 + line as u64,
    }
}

impl ProcessTracks {
    pub fn new(
        tracks: &mut Tracks,
        number: u32,
        pids: &mut SystemIds,
        trace: &Trace<'_>,
    ) -> io::Result<ProcessTracks> {
        let known = trace.process(number);
        let info = known.and_then(|known| known.definitions.process()).unwrap_or_default();
        let own_pid = if info.pid == 0 { known.map_or(0, |known| known.begin.pid) } else { info.pid };
        let pid = pids.unique(own_pid);
        let mut name = trace.process_name(number).to_string();
        if let Some(rank) = info.rank {
            name = format!("{name}, rank {rank}");
        }
        if pid != own_pid {
            name = format!("{name}, process {own_pid}");
        }
        let track = tracks.process(pid, &name, &info.command)?;
        Ok(ProcessTracks {
            number,
            pid,
            own_pid,
            track,
            main_is_known: false,
            threads: FxHashMap::default(),
            ranges: None,
            devices: FxHashMap::default(),
            streams: FxHashMap::default(),
            counters: FxHashMap::default(),
            memory: FxHashMap::default(),
            callers: Callers::default(),
            untimed: None,
            unknown: 0,
            crowded: 0,
        })
    }

    pub fn caller(&mut self, number: u32, caller: &gputrace_wire::caller::Caller) {
        self.callers.learn(number, caller);
    }

    fn thread(
        &mut self,
        tracks: &mut Tracks,
        thread: u32,
        tids: &mut SystemIds,
        trace: &Trace<'_>,
    ) -> io::Result<()> {
        if self.threads.contains_key(&thread) {
            return Ok(());
        }
        let known = trace.process(self.number).and_then(|known| known.definitions.thread(thread));
        let tid = known.map_or(0, |known| known.tid);
        let is_main = tid == self.own_pid && tid != 0 && !self.main_is_known;
        self.main_is_known |= is_main;
        let name = trace.thread_name(self.number, thread);
        let tid = if is_main { self.pid } else { tids.unique(tid) };
        let track = tracks.thread(self.track, self.pid, tid, &name)?;
        self.threads.insert(thread, ThreadTrack::new(tracks.sequence_of(track), track, &name));
        Ok(())
    }

    /// Shows a call. All that it contains is known by now; what it caused comes later.
    pub fn call(
        &mut self,
        tracks: &mut Tracks,
        call: &HostCall,
        definitions: &Definitions,
        tids: &mut SystemIds,
        trace: &mut Trace<'_>,
    ) -> io::Result<()> {
        let times = (trace.unix_ns(call.process, call.start_ns), call.duration_ns);
        let written = loop {
            if let Some(thread) = self.threads.get_mut(&call.thread) {
                let callers = &self.callers;
                break thread
                    .call(tracks, times, |event| describe(event, call, definitions, callers, trace))?;
            }
            self.thread(tracks, call.thread, tids, trace)?;
        };
        self.crowded += u64::from(!written);
        Ok(())
    }

    /// Writes what the process's memory is from some times on.
    pub fn memory(
        &mut self,
        tracks: &mut Tracks,
        values: &[MemoryValue],
        memory: &MemoryCounters,
        trace: &Trace<'_>,
    ) -> io::Result<()> {
        for value in values {
            let track = match self.memory.get(&value.counter) {
                Some(track) => *track,
                None => {
                    let name = memory.name(self.number, value.counter);
                    let rank = rank::MEMORY + rank_of_memory(value.counter);
                    let made = tracks.counter(self.track, &fold_safe(&name), rank, CounterUnit::Bytes)?;
                    *self.memory.entry(value.counter).or_insert(made)
                }
            };
            let bytes = i64::try_from(value.bytes).unwrap_or(i64::MAX);
            tracks.counter_value(track, trace.unix_ns(self.number, value.at_ns), bytes)?;
        }
        Ok(())
    }

    /// Adds steps to a counter.
    fn steps(
        &mut self,
        tracks: &mut Tracks,
        counted: Counted,
        added: &[(u64, i64)],
        trace: &Trace<'_>,
    ) -> io::Result<()> {
        loop {
            if let Some(steps) = self.counters.get_mut(&counted) {
                added.iter().for_each(|(at_ns, step)| steps.add(*at_ns, *step));
                while let Some((at_ns, value)) = steps.take(false) {
                    tracks.counter_value(steps.track, at_ns, value)?;
                }
                return Ok(());
            }
            let made = self.counter(tracks, counted, trace)?;
            self.counters.insert(counted, made);
        }
    }

    fn counter(&mut self, tracks: &mut Tracks, counted: Counted, trace: &Trace<'_>) -> io::Result<Steps> {
        let (parent, name, rank, unit, grid_ns) = match counted {
            Counted::Queue(device) => {
                let device = self.device(tracks, device, trace)?;
                (device, "queue depth".to_owned(), rank::QUEUE, CounterUnit::Count, DEPTH_GRID_NS)
            }
            Counted::Copies(device, direction) => {
                let rank = rank::BANDWIDTH + direction as u64;
                let device = self.device(tracks, device, trace)?;
                (device, format!("bandwidth {}", direction.name()), rank, CounterUnit::Named("bytes/s"), 1)
            }
        };
        Ok(Steps::new(tracks.counter(parent, &name, rank, unit)?, grid_ns))
    }

    fn device(&mut self, tracks: &mut Tracks, ordinal: u32, trace: &Trace<'_>) -> io::Result<u64> {
        if let Some(track) = self.devices.get(&ordinal) {
            return Ok(*track);
        }
        let name = trace.device_name(self.number, ordinal);
        let track = tracks.child(self.track, name, rank::numbered(rank::DEVICE, ordinal))?;
        self.devices.insert(ordinal, track);
        Ok(track)
    }

    /// Shows something that a device executed.
    pub fn operation(
        &mut self,
        tracks: &mut Tracks,
        operation: &Operation,
        trace: &mut Trace<'_>,
    ) -> io::Result<()> {
        let Some(timing) = operation.timing else { return self.untimed(tracks, operation, trace) };
        let device = operation.device;
        let mut key = (device, operation.context, operation.stream);
        let flow = operation.call.as_ref().map_or(0, flow_of);
        let execution = execution_of(operation, timing, flow, trace);
        loop {
            if let Some(stream) = self.streams.get_mut(&key) {
                stream.add(tracks, execution, trace)?;
                break;
            }
            if self.streams.len() >= STREAMS_MAX && key != MORE_STREAMS {
                key = MORE_STREAMS;
                continue;
            }
            let made = self.stream(tracks, key, operation, trace)?;
            self.streams.insert(key, made);
        }
        let start_ns = execution.timing.start_ns;
        if let Some(call) = &operation.call
            && call.start_ns < timing.start_ns
        {
            let launched_ns = trace.unix_ns(call.process, call.start_ns);
            self.steps(tracks, Counted::Queue(device), &[(launched_ns, 1), (start_ns, -1)], trace)?;
        }
        if let What::Copy { direction, bytes, .. } = operation.what
            && timing.duration_ns != 0
        {
            let rate = u128::from(bytes) * 1_000_000_000 / u128::from(timing.duration_ns);
            let rate = i64::try_from(rate).unwrap_or(i64::MAX);
            let end_ns = start_ns.saturating_add(timing.duration_ns);
            let steps = [(start_ns, rate), (end_ns, -rate)];
            self.steps(tracks, Counted::Copies(device, direction), &steps, trace)?;
        }
        Ok(())
    }

    fn stream(
        &mut self,
        tracks: &mut Tracks,
        key: (u32, u32, u32),
        operation: &Operation,
        trace: &Trace<'_>,
    ) -> io::Result<StreamTrack> {
        if key == MORE_STREAMS {
            return Ok(StreamTrack::new(self.track, "further streams".to_owned(), rank::UNTIMED));
        }
        let (ordinal, context, number) = key;
        let device = self.device(tracks, ordinal, trace)?;
        let definition = operation.call.as_ref().map_or(0, |call| call.stream);
        let mut name = match definition {
            0 => format!("stream {number}"),
            known => trace.stream_name(self.number, known).to_owned(),
        };
        let mut known = self.streams.keys().filter(|key| key.0 == ordinal);
        if known.any(|key| key.1 != context) {
            name = format!("{name}, context {context}");
        }
        Ok(StreamTrack::new(device, name, rank::numbered(rank::STREAM, number)))
    }

    /// Shows an operation without device times at the time of its call, as a moment on a track for these.
    fn untimed(
        &mut self,
        tracks: &mut Tracks,
        operation: &Operation,
        trace: &mut Trace<'_>,
    ) -> io::Result<()> {
        let Some(call) = &operation.call else {
            self.unknown += 1;
            return Ok(());
        };
        let (_, leaf) = category_of(&operation.what, operation.graph);
        let at_ns = trace.unix_ns(operation.process, call.start_ns);
        let name = trace.labels.kernels.leaf(operation.process, leaf);
        let track = self.untimed_track(tracks)?;
        tracks.event(0, (EventType::Instant, track, at_ns), |event| {
            event.category(EventCategory::Untimed);
            event
                .name(Name::Leaf(operation.process, leaf), || name.as_deref().unwrap_or_default().to_owned());
        })
    }

    fn untimed_track(&mut self, tracks: &mut Tracks) -> io::Result<u64> {
        match self.untimed {
            Some(track) => Ok(track),
            None => {
                Ok(*self.untimed.insert(tracks.child(self.track, "without device times", rank::UNTIMED)?))
            }
        }
    }

    pub fn range_begins(
        &mut self,
        tracks: &mut Tracks,
        range: &RangeInstance,
        definitions: &Definitions,
        tids: &mut SystemIds,
        trace: &Trace<'_>,
    ) -> io::Result<()> {
        self.thread(tracks, range.thread, tids, trace)?;
        let Some(thread) = self.threads.get_mut(&range.thread) else { return Ok(()) };
        let name = Name::Range(self.number, range.range);
        let start_ns = trace.unix_ns(self.number, range.start_ns);
        let callers = &self.callers;
        thread.push(tracks, (range.number, name), start_ns, |event| {
            describe_range(event, name, range, definitions, callers);
        })
    }

    pub fn range_ends(
        &mut self,
        tracks: &mut Tracks,
        range: &RangeInstance,
        definitions: &Definitions,
        trace: &Trace<'_>,
    ) -> io::Result<()> {
        let [start_ns, end_ns] = [range.start_ns, range.end_ns].map(|ns| trace.unix_ns(self.number, ns));
        if let Some(thread) = self.threads.get_mut(&range.thread)
            && thread
                .pop(tracks, (range.number, end_ns, range.is_whole), |name| range_text(name, definitions))?
        {
            return Ok(());
        }
        let ranges = match &mut self.ranges {
            Some(ranges) => ranges,
            none => none.insert(Apart::new(0, self.track, "ranges", rank::RANGES)),
        };
        let (name, callers) = (Name::Range(self.number, range.range), &self.callers);
        let written = ranges.slice(tracks, (start_ns, end_ns.saturating_sub(start_ns)), |event| {
            describe_range(event, name, range, definitions, callers);
            if !range.is_whole {
                event.number(AnnotationKey::Unfinished, 1);
            }
        })?;
        self.crowded += u64::from(!written);
        Ok(())
    }

    /// Writes what waits, and counts of what could not be shown.
    pub fn finish(mut self, tracks: &mut Tracks, at_ns: u64, trace: &mut Trace<'_>) -> io::Result<()> {
        for stream in self.streams.values_mut() {
            stream.finish(tracks, trace)?;
            self.crowded += stream.crowded;
        }
        for steps in self.counters.values_mut() {
            while let Some((at_ns, value)) = steps.take(true) {
                tracks.counter_value(steps.track, at_ns, value)?;
            }
        }
        let at_ns = trace.unix_ns(self.number, at_ns);
        for (count, what) in [
            (self.unknown, "operations without times and without calls"),
            (self.crowded, "slices that overlap with too many others"),
        ] {
            if count != 0 {
                let track = self.untimed_track(tracks)?;
                tracks.event(0, (EventType::Instant, track, at_ns), |event| {
                    event.category(EventCategory::Untimed);
                    event.name(Name::Fixed(what), || what.to_owned());
                    event.number(AnnotationKey::Count, count);
                })?;
            }
        }
        Ok(())
    }
}

/// The id that a call shares with what it executed; 0 if there can be nothing.
fn flow_of(call: &HostCall) -> u64 {
    match call.correlation {
        0 => 0,
        correlation => (u64::from(call.process) + 1) << 32 | u64::from(correlation),
    }
}

#[inline]
fn describe(
    event: &mut EventFields<'_>,
    call: &HostCall,
    definitions: &Definitions,
    callers: &Callers,
    trace: &mut Trace<'_>,
) {
    event.category(EventCategory::Call);
    event.name(Name::Call(call.process, call.api), || definitions.call_name(call.api).to_owned());
    let executes = matches!(call.kind, kind::LAUNCH | kind::GRAPH_LAUNCH | kind::COPY | kind::FILL);
    if executes && call.flags & flag::CAPTURED == 0 && call.correlation != 0 {
        event.flow(flow_of(call));
    }
    if call.correlation != 0 {
        event.number(AnnotationKey::Correlation, call.correlation.into());
    }
    match &call.detail {
        Detail::Copy(copy) => event.number(AnnotationKey::Bytes, copy.bytes),
        Detail::Fill { bytes, .. } => event.number(AnnotationKey::Bytes, *bytes),
        Detail::Memory(memory) if memory.bytes != 0 => event.number(AnnotationKey::Bytes, memory.bytes),
        _ => {}
    }
    if call.status != 0 {
        event.text(AnnotationKey::Status, AnnotationText::Status(call.status), || {
            failed_calls::name(call.status).to_owned()
        });
    }
    if call.stack != 0 {
        event.text(AnnotationKey::Stack, AnnotationText::Stack(call.process, call.stack), || {
            let frames = trace.labels.stacks.frames(call.process, call.stack);
            let texts = frames.iter().map(|frame| trace.labels.stacks.text(frame));
            texts.map(|text| fold_safe(&text).into_owned()).collect::<Vec<_>>().join(";")
        });
    }
    span(event, call.process, call.caller, callers);
}

fn describe_range(
    event: &mut EventFields<'_>,
    name: Name,
    range: &RangeInstance,
    definitions: &Definitions,
    callers: &Callers,
) {
    event.category(EventCategory::Range);
    event.name(name, || range_text(name, definitions));
    span(event, range.process, range.caller, callers);
}

fn range_text(name: Name, definitions: &Definitions) -> String {
    let Name::Range(_, range) = name else { return String::new() };
    let (domain, name) = definitions.range(range).unwrap_or_default();
    RangeName { domain: domain.into(), name: name.into() }.text()
}

/// The active span, as W3C writes it: trace id and span id.
fn span(event: &mut EventFields<'_>, process: u32, caller: u32, callers: &Callers) {
    if let Some(span) = callers.get(caller) {
        event.text(AnnotationKey::Span, AnnotationText::Span(process, caller), || {
            let [low, high] = span.trace;
            format!("00-{high:016x}{low:016x}-{:016x}-{:02x}", span.span, span.flags)
        });
    }
}
