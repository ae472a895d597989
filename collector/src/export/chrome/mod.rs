//! `chrome`: the JSON that PyTorch's profiler writes, for HTA, Perfetto's UI and `chrome://tracing`.
//!
//! Every event is written when it comes; kept are the numbers of tracks ([`ChromeTracks`]). Times are in
//! microseconds with three decimals, since the time in `baseTimeNanoseconds`: exact, unless the trace is
//! longer than a hundred days.

mod events;
mod memory;
mod pushed;
#[cfg(test)]
mod tests;
mod tracks;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::batch::{DeviceMetric, DeviceSamples};
use crate::export::device_counters::{DEVICE_COUNTERS, DeviceCounter, LOWERED, lowered_for};
use crate::export::memory_counters::{MemoryCounters, MemoryValue};
use crate::export::{Event, Format, FormatEntry, Target, Trace};
use crate::flame::entry_name;
use crate::label::throttle;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation, What};
use crate::model::{Process, RangeName};
use crate::names::{line_safe, short_command};
use events::{
    Async, CallArgs, Complete, CounterEvent, DeviceProperties, Flow, LabelArgs, MemoryEvent, Metadata,
    NameArgs, OperationArgs, RangeArgs, WhatArgs, copy_name, runtime_name,
};
use memory::MemorySeries;
use pushed::Pushed;
use tracks::ChromeTracks;

pub(super) const FORMAT: FormatEntry = FormatEntry {
    name: "chrome",
    about: "a timeline as PyTorch's profiler writes it, for HTA, Perfetto and chrome://tracing",
    target: Target::Stream,
    open: |destination| {
        Ok(Box::new(Chrome {
            out: BufWriter::with_capacity(1 << 16, destination.stream()?),
            tracks: ChromeTracks::default(),
            base_ns: 0,
            flows: 0,
            events: 0,
            untimed: 0,
            pushed: Pushed::default(),
            memory: MemoryCounters::default(),
            series: MemorySeries::default(),
            sampled: FxHashMap::default(),
            ranks: BTreeSet::new(),
            has_rank: false,
            is_first: true,
        }))
    },
};

struct Chrome {
    out: BufWriter<Box<dyn Write>>,
    tracks: ChromeTracks,
    /// The time 0 of the output, since the Unix epoch.
    base_ns: u64,
    flows: u64,
    events: u64,
    untimed: u64,
    pushed: Pushed,
    memory: MemoryCounters,
    series: MemorySeries,
    /// By the number of each sampled device: why its clocks are lowered, as far as that was written.
    sampled: FxHashMap<u32, u64>,
    /// Of the processes in the output.
    ranks: BTreeSet<u32>,
    has_rank: bool,
    is_first: bool,
}

impl Format for Chrome {
    fn begin(&mut self, trace: &mut Trace<'_>) -> io::Result<()> {
        self.base_ns = trace.begin_unix_ns;
        let command = trace.totals.sessions.first().map_or(&[][..], |session| &session.begin.command);
        self.out.write_all(b"{\"schemaVersion\":1,\"traceName\":")?;
        serde_json::to_writer(&mut self.out, &*line_safe(&short_command(command)))?;
        write!(self.out, ",\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":{}", self.base_ns)?;
        self.out.write_all(b",\n\"deviceProperties\":")?;
        let devices = self.device_properties(trace);
        serde_json::to_writer(&mut self.out, &devices)?;
        let all = trace.totals.processes.iter().filter_map(rank_of);
        self.has_rank = self.rank(&all.collect())?;
        self.out.write_all(b",\n\"traceEvents\":[")
    }

    fn event(&mut self, event: Event<'_>, trace: &mut Trace<'_>) -> io::Result<()> {
        match event {
            Event::ProcessBegins { number, process, .. } => {
                self.ranks.extend(trace.process(number).and_then(rank_of));
                self.process(number, process.pid, trace)
            }
            Event::Call(call, definitions) => {
                self.call(call, definitions, trace)?;
                let values = self.memory.call(call, definitions, trace);
                self.memory_values(call.process, &values, trace)
            }
            Event::Operation(operation, definitions) => self.operation(operation, definitions, trace),
            Event::RangeBegins(range, _) => {
                self.pushed.begins(range);
                Ok(())
            }
            Event::Range(range, definitions) => self.range(range, definitions, trace),
            Event::Samples(samples) => self.samples(samples, trace),
            Event::ProcessEnds { number, last_seen_ns, .. } => {
                let values = self.memory.process_ends(number, last_seen_ns, trace);
                self.memory_values(number, &values, trace)?;
                self.series.process_ends(number);
                self.tracks.process_ends(number);
                self.pushed.process_ends(number);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, trace: &mut Trace<'_>) -> io::Result<u64> {
        self.out.write_all(b"\n]")?;
        if !self.has_rank {
            // A filter may have left one of several.
            let ranks = std::mem::take(&mut self.ranks);
            self.rank(&ranks)?;
        }
        if !trace.missing.is_empty() {
            self.out.write_all(b",\n\"recordingLacks\":")?;
            serde_json::to_writer(&mut self.out, &trace.missing)?;
        }
        if self.untimed > 0 {
            write!(self.out, ",\n\"operationsWithoutTimes\":{}", self.untimed)?;
            let lost = "operations without a device time, of which only the calls are in the output";
            trace.warnings.push(format!("{lost}: {}", self.untimed));
        }
        self.out.write_all(b"}\n")?;
        self.out.flush()?;
        Ok(self.events)
    }
}

impl Chrome {
    fn write(&mut self, event: &impl Serialize) -> io::Result<()> {
        self.out.write_all(if self.is_first { b"\n" } else { b",\n" })?;
        self.is_first = false;
        Ok(serde_json::to_writer(&mut self.out, event)?)
    }

    /// Writes the rank if it is one, since readers take a file for that of one rank. They search for this
    /// text, with the space. Returns whether it was one.
    fn rank(&mut self, ranks: &BTreeSet<u32>) -> io::Result<bool> {
        let one = ranks.first().filter(|_| ranks.len() == 1);
        if let Some(rank) = one {
            write!(self.out, ",\n\"distributedInfo\":{{\"rank\": {rank}}}")?;
        }
        Ok(one.is_some())
    }

    fn us(&self, process: u32, monotonic_ns: u64, trace: &Trace<'_>) -> f64 {
        self.us_of(trace.unix_ns(process, monotonic_ns))
    }

    /// A time since the Unix epoch as one of the output.
    fn us_of(&self, unix_ns: u64) -> f64 {
        let since = i128::from(unix_ns) - i128::from(self.base_ns);
        since as f64 / 1e3
    }

    /// All devices, which get their numbers here.
    fn device_properties(&mut self, trace: &Trace<'_>) -> Vec<DeviceProperties> {
        let mut all = Vec::new();
        for process in &trace.totals.processes {
            for device in process.definitions.devices() {
                let (id, is_new) = self.tracks.device(process.number, device.ordinal, || device.uuid);
                if is_new {
                    all.push(DeviceProperties {
                        id,
                        name: line_safe(&device.name).into_owned(),
                        memory_bytes: device.total_memory_bytes,
                        compute_major: device.compute_major,
                        compute_minor: device.compute_minor,
                        multiprocessors: device.multiprocessors,
                        warp_size: device.warp_size,
                    });
                }
            }
            self.tracks.process_ends(process.number);
        }
        all
    }

    /// Names a process and its threads.
    fn process(&mut self, number: u32, own_pid: u32, trace: &Trace<'_>) -> io::Result<()> {
        let session = trace.unix_ns(number, 0);
        let pid = self.tracks.pid(number, own_pid, session);
        self.name("process_name", pid, 0, &trace.process_name(number))?;
        self.labels(pid, "CPU")?;
        let definitions = trace.process(number).map(|process| &process.definitions);
        for (id, thread) in definitions.into_iter().flat_map(Definitions::threads) {
            self.name("thread_name", pid, thread.tid, &trace.thread_name(number, id))?;
        }
        Ok(())
    }

    fn name(&mut self, of: &'static str, pid: u32, tid: u32, name: &str) -> io::Result<()> {
        let args = NameArgs { name: &line_safe(name) };
        self.write(&Metadata { ph: "M", name: of, pid, tid, args })
    }

    fn labels(&mut self, pid: u32, labels: &str) -> io::Result<()> {
        let args = LabelArgs { labels: &line_safe(labels) };
        self.write(&Metadata { ph: "M", name: "process_labels", pid, tid: 0, args })
    }

    /// Names the tracks of a device.
    fn device(&mut self, pid: u32, name: &str) -> io::Result<()> {
        self.name("process_name", pid, 0, name)?;
        self.labels(pid, &format!("GPU {pid}"))
    }

    /// The track of a thread.
    fn thread(&mut self, process: u32, thread: u32, trace: &Trace<'_>) -> (u32, u32) {
        let known = trace.process(process);
        let own = known.map_or(0, |process| process.begin.pid);
        let pid = self.tracks.pid(process, own, trace.unix_ns(process, 0));
        let thread = known.and_then(|process| process.definitions.thread(thread));
        (pid, thread.map_or(0, |thread| thread.tid))
    }

    fn call(&mut self, call: &HostCall, definitions: &Definitions, trace: &Trace<'_>) -> io::Result<()> {
        let (pid, tid) = self.thread(call.process, call.thread, trace);
        let driver = line_safe(definitions.call_name(call.api));
        let runtime = runtime_name(entry_name(&driver));
        self.events += 1;
        self.write(&Complete {
            ph: "X",
            cat: if runtime.is_some() { "cuda_runtime" } else { "cuda_driver" },
            name: runtime.unwrap_or(&driver),
            pid,
            tid,
            ts: self.us(call.process, call.start_ns, trace),
            dur: call.duration_ns as f64 / 1e3,
            args: CallArgs {
                driver: &driver,
                correlation: correlation(call),
                status: Some(call.status).filter(|status| *status != 0),
            },
        })
    }

    /// Writes what a process's memory is from some times on.
    fn memory_values(&mut self, process: u32, values: &[MemoryValue], trace: &Trace<'_>) -> io::Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        let mut series = std::mem::take(&mut self.series);
        let (pid, _) = self.thread(process, 0, trace);
        for value in values {
            let (name, args) = series.set(process, value, &self.memory);
            let ts = self.us(process, value.at_ns, trace);
            self.write(&MemoryEvent { ph: "C", name, pid, tid: 0, ts, args })?;
        }
        self.series = series;
        Ok(())
    }

    fn range(
        &mut self,
        range: &RangeInstance,
        definitions: &Definitions,
        trace: &Trace<'_>,
    ) -> io::Result<()> {
        let (pid, tid) = self.thread(range.process, range.thread, trace);
        let name = definitions.range(range.range).map_or_else(
            || "(unknown range)".to_owned(),
            |(domain, name)| RangeName { domain: domain.into(), name: name.into() }.text(),
        );
        let (cat, name) = ("user_annotation", line_safe(&name));
        let ts = self.us(range.process, range.start_ns, trace);
        self.events += 1;
        if !self.pushed.ends(range) {
            self.flows += 1;
            let id = self.flows;
            self.write(&Async { ph: "b", cat, name: &name, id, pid, tid, ts })?;
            let ts = self.us(range.process, range.end_ns, trace);
            return self.write(&Async { ph: "e", cat, name: &name, id, pid, tid, ts });
        }
        self.write(&Complete {
            ph: "X",
            cat,
            name: &name,
            pid,
            tid,
            ts,
            dur: range.end_ns.saturating_sub(range.start_ns) as f64 / 1e3,
            args: RangeArgs { open: !range.is_whole },
        })
    }

    fn operation(
        &mut self,
        operation: &Operation,
        definitions: &Definitions,
        trace: &mut Trace<'_>,
    ) -> io::Result<()> {
        let Some(timing) = operation.timing else {
            self.untimed += 1;
            return Ok(());
        };
        let process = operation.process;
        let (pid, tid) = self.stream(operation, definitions, trace)?;
        let key = [pid, operation.context, operation.stream];
        let start_ns = self.tracks.begin_ns(process, key, timing.start_ns, timing.duration_ns);
        let (cat, name) = match operation.what {
            What::Kernel(kernel) => {
                let full = trace.labels.kernels.name(process, kernel.name).full;
                ("kernel", line_safe(&full).into_owned())
            }
            What::Copy { direction, source_memory, target_memory, .. } => {
                ("gpu_memcpy", copy_name(direction, source_memory, target_memory))
            }
            What::Fill { .. } => ("gpu_memset", "Memset (Device)".to_owned()),
            What::Graph => {
                let graph = operation.graph.map_or(0, |graph| graph.graph);
                ("kernel", trace.labels.kernels.graph(process, graph).to_string())
            }
        };
        self.events += 1;
        self.write(&Complete {
            ph: "X",
            cat,
            name: &name,
            pid,
            tid,
            ts: self.us(process, start_ns, trace),
            dur: timing.duration_ns as f64 / 1e3,
            args: OperationArgs {
                device: pid,
                context: operation.context,
                stream: tid,
                correlation: operation.call.as_ref().and_then(correlation),
                what: WhatArgs::new(operation, timing.duration_ns),
                graph_node: operation.graph.map(|graph| graph.node).filter(|node| *node != 0),
            },
        })?;
        match &operation.call {
            Some(call) => self.flow(call, (pid, tid), start_ns, trace),
            None => Ok(()),
        }
    }

    /// An arrow from the call to the operation.
    fn flow(&mut self, call: &HostCall, to: (u32, u32), start_ns: u64, trace: &Trace<'_>) -> io::Result<()> {
        let from = self.thread(call.process, call.thread, trace);
        self.flows += 1;
        let ends = [("s", from, call.start_ns, None), ("f", to, start_ns, Some("e"))];
        for (ph, (pid, tid), at_ns, bp) in ends {
            let ts = self.us(call.process, at_ns, trace);
            self.write(&Flow { ph, id: self.flows, pid, tid, ts, cat: "ac2g", name: "ac2g", bp })?;
        }
        Ok(())
    }

    /// Counters of a device, in the track of the device itself.
    fn samples(&mut self, samples: &DeviceSamples, trace: &Trace<'_>) -> io::Result<()> {
        let Some((process, ordinal)) = trace.users_of(&samples.device).next() else { return Ok(()) };
        let (pid, _) = self.tracks.device(process, ordinal, || samples.device.uuid);
        // The device may have executed nothing, and have no name by that.
        if self.sampled.insert(pid, self.sampled.get(&pid).copied().unwrap_or(0)).is_none() {
            self.device(pid, trace.device_name(process, ordinal))?;
        }
        for sample in &samples.samples {
            let ts = self.us_of(trace.sample_unix_ns(sample.monotonic_ns));
            for DeviceCounter { metric, divisor, unit } in DEVICE_COUNTERS {
                let Some(value) = sample.get(metric) else { continue };
                let args = BTreeMap::from([(unit, value as f64 / divisor as f64)]);
                self.write(&CounterEvent { ph: "C", name: metric.name(), pid, tid: 0, ts, args })?;
            }
            // An idle device lowers its clocks by itself. Nothing is known while it cannot be read.
            let reasons = sample.get(DeviceMetric::ThrottleReasons).unwrap_or(0) & !throttle::IDLE;
            if self.sampled.insert(pid, reasons) != Some(reasons) {
                let args = lowered_for(reasons).map(|(name, is_set)| (name, f64::from(u8::from(is_set))));
                let name = LOWERED;
                self.write(&CounterEvent { ph: "C", name, pid, tid: 0, ts, args: args.collect() })?;
            }
        }
        Ok(())
    }

    /// The track of an operation, which is named at its first one.
    fn stream(
        &mut self,
        operation: &Operation,
        definitions: &Definitions,
        trace: &Trace<'_>,
    ) -> io::Result<(u32, u32)> {
        let process = operation.process;
        let uuid = || definitions.device_by_ordinal(operation.device).map_or([0; 2], |device| device.uuid);
        let (pid, _) = self.tracks.device(process, operation.device, uuid);
        let (tid, is_new) = self.tracks.stream(process, pid, operation.context, operation.stream);
        if is_new {
            self.device(pid, trace.device_name(process, operation.device))?;
            let call = operation.call.as_ref().filter(|call| call.stream != 0 && operation.graph.is_none());
            let mut name = match call {
                Some(call) => trace.stream_name(process, call.stream).to_owned(),
                None => format!("stream {}", operation.stream),
            };
            if trace.totals.processes.len() > 1 {
                name += &format!(", {}", trace.process_name(process));
            }
            self.name("thread_name", pid, tid, &name)?;
        }
        Ok((pid, tid))
    }
}

fn rank_of(process: &Process) -> Option<u32> {
    process.definitions.process()?.rank
}

/// A call's correlation id, unique over all processes, each of which counts its own. It is above 2^32 from
/// the first process on: HTA stores small ids in few bits, and positions of events in the same column.
fn correlation(call: &HostCall) -> Option<u64> {
    let process = u64::from(call.process) + 1;
    (call.correlation != 0).then(|| process << 32 | u64::from(call.correlation))
}
