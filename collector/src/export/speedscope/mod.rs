//! `speedscope`: GPU time and host time by stack, and a timeline for each stream, as one JSON document.
//!
//! It keeps the sums by stack and, of each stream, the start, end and frame of a bounded number of
//! operations. A profile's name says how many operations of its stream are left out.

#[cfg(test)]
mod tests;
mod timeline;

use std::cmp::Reverse;
use std::io::{self, BufWriter, Write};

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::aggregate::{StackKey, Stacks};
use crate::export::by_stack::{self, ByStack, FrameNumbers, ViewerFrame};
use crate::export::{Event, Format, FormatEntry, Target, Trace};
use crate::model::operation::Operation;
use crate::names::{line_safe, short_command};
use timeline::Executed;

/// Operations kept for timelines, of one stream and of all. The page reads a document of some hundred
/// megabytes at most, and an operation takes about 90 bytes of it.
const STREAM_MAX: usize = if cfg!(test) { 1 << 9 } else { 1 << 20 };
const TOTAL_MAX: usize = if cfg!(test) { 3 << 8 } else { 1 << 21 };
/// Streams that have a timeline: the page lists all profiles.
const STREAMS_MAX: usize = 1024;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

pub(super) const FORMAT: FormatEntry = FormatEntry {
    name: "speedscope",
    about: "times by stack and a timeline for each stream, for speedscope.app",
    target: Target::Stream,
    open: |destination| {
        Ok(Box::new(Speedscope {
            out: BufWriter::with_capacity(1 << 16, destination.stream()?),
            sums: ByStack::default(),
            frames: FrameNumbers::default(),
            leaves: FxHashMap::default(),
            streams: FxHashMap::default(),
            kept: 0,
            without_timeline: 0,
            events: 0,
        }))
    },
};

struct Speedscope {
    out: BufWriter<Box<dyn Write>>,
    sums: ByStack,
    frames: FrameNumbers,
    /// Numbers of the frames of what was executed.
    leaves: FxHashMap<StackKey, u32>,
    /// By process, device, context and the stream's number in records.
    streams: FxHashMap<[u32; 4], StreamTimeline>,
    kept: usize,
    /// Operations of streams that have no timeline.
    without_timeline: u64,
    events: u64,
}

#[derive(Debug, Default)]
struct StreamTimeline {
    /// The stream's definition, 0 if no call named it.
    stream: u32,
    executed: Vec<Executed>,
    left_out: u64,
}

/// A begin (`O`) or an end (`C`) of a frame.
#[derive(Serialize)]
struct JsonEdge {
    r#type: &'static str,
    frame: u32,
    at: u64,
}

impl Format for Speedscope {
    fn event(&mut self, event: Event<'_>, trace: &mut Trace<'_>) -> io::Result<()> {
        self.events += u64::from(matches!(event, Event::Call(..) | Event::Operation(..)));
        self.sums.add(&event);
        if let Event::Operation(operation, _) = event {
            self.executed(operation, trace);
        }
        Ok(())
    }

    fn finish(&mut self, trace: &mut Trace<'_>) -> io::Result<u64> {
        let sums = std::mem::take(&mut self.sums);
        write!(
            self.out,
            r#"{{"$schema":"{SCHEMA}","exporter":"gputrace@{}","name":"#,
            env!("CARGO_PKG_VERSION")
        )?;
        let command = trace.totals.sessions.first().map_or(&[][..], |session| &session.begin.command);
        let mut name = short_command(command);
        if trace.totals.simulated {
            name += " (simulated device)";
        }
        trace.missing.iter().for_each(|line| name += &format!(" ({line})"));
        trace.warnings.extend(sums.losses());
        if self.without_timeline > 0 {
            let lost =
                format!("operations of further streams, without a timeline: {}", self.without_timeline);
            name += &format!(" ({lost})");
            trace.warnings.push(lost);
        }
        self.text(&name)?;
        // The list of profiles is never empty: the page takes an empty one for a damaged file.
        self.out.write_all(br#","activeProfileIndex":0,"profiles":["#)?;
        if sums.device.has_times() {
            let name = match sums.untimed {
                0 => "GPU time by stack".to_owned(),
                count => format!("GPU time by stack (operations without a time: {count})"),
            };
            self.by_stack(&name, &sums.device, trace)?;
            self.out.write_all(b",\n")?;
        }
        self.by_stack("Host time of CUDA calls by stack", &sums.host, trace)?;
        self.timelines(trace)?;
        self.out.write_all(b"],\n\"shared\":{\"frames\":[")?;
        for (number, frame) in std::mem::take(&mut self.frames).all().iter().enumerate() {
            self.out.write_all(if number == 0 { b"\n" } else { b",\n" })?;
            self.frame(frame)?;
        }
        self.out.write_all(b"]}}\n")?;
        self.out.flush()?;
        Ok(self.events)
    }
}

impl Speedscope {
    fn text(&mut self, text: &str) -> io::Result<()> {
        Ok(serde_json::to_writer(&mut self.out, &*line_safe(text))?)
    }

    fn frame(&mut self, frame: &ViewerFrame) -> io::Result<()> {
        self.out.write_all(br#"{"name":"#)?;
        self.text(&frame.name)?;
        if !frame.path.is_empty() {
            self.out.write_all(br#","file":"#)?;
            self.text(&frame.path)?;
        }
        if frame.line > 0 {
            write!(self.out, r#","line":{}"#, frame.line)?;
        }
        self.out.write_all(b"}")
    }

    /// Keeps an operation for its stream's timeline.
    fn executed(&mut self, operation: &Operation, trace: &mut Trace<'_>) {
        let Some(timing) = operation.timing else { return };
        let key = [operation.process, operation.device, operation.context, operation.stream];
        let has_timeline = self.streams.len() < STREAMS_MAX || self.streams.contains_key(&key);
        if !has_timeline {
            self.without_timeline += 1;
            return;
        }
        let timeline = self.streams.entry(key).or_default();
        if timeline.executed.len() >= STREAM_MAX || self.kept >= TOTAL_MAX {
            timeline.left_out += 1;
            return;
        }
        if timeline.stream == 0 && operation.graph.is_none() {
            timeline.stream = operation.call.as_ref().map_or(0, |call| call.stream);
        }
        let row = StackKey::of_operation(operation);
        let leaf = StackKey::without_call(row.process, 0, row.leaf);
        let frames = &mut self.frames;
        let mut new = || u32::try_from(frames.of(by_stack::leaf(trace, &leaf))).unwrap_or(u32::MAX);
        let frame = *self.leaves.entry(leaf).or_insert_with(&mut new);
        let start_ns = trace.unix_ns(operation.process, timing.start_ns);
        let end_ns = Reverse(start_ns.saturating_add(timing.duration_ns));
        timeline.executed.push(Executed { start_ns, end_ns, frame });
        self.kept += 1;
    }

    /// Writes a profile of sums: process, thread and ranges, then the program's frames.
    fn by_stack(&mut self, name: &str, stacks: &Stacks, trace: &mut Trace<'_>) -> io::Result<()> {
        let weights: Vec<_> = stacks.sorted().into_iter().filter(|(_, weight)| weight.timed > 0).collect();
        let total = stacks.total_ns();
        self.head("sampled", name, total)?;
        self.out.write_all(br#""samples":["#)?;
        for (number, (key, _)) in weights.iter().enumerate() {
            let ranges = by_stack::range_names(trace, key);
            let around = by_stack::thread_names(trace, key);
            let around = around.iter().map(|name| ViewerFrame::named(name));
            let around = around.chain(ranges.iter().map(|name| ViewerFrame::named(name)));
            let frames = around.chain(by_stack::frames(trace, key));
            let sample: Vec<usize> = frames.map(|frame| self.frames.of(frame)).collect();
            self.out.write_all(if number == 0 { b"\n" } else { b",\n" })?;
            serde_json::to_writer(&mut self.out, &sample)?;
        }
        let weights: Vec<u64> = weights.iter().map(|(_, weight)| weight.ns).collect();
        self.out.write_all(b"],\n\"weights\":")?;
        serde_json::to_writer(&mut self.out, &weights)?;
        self.out.write_all(b"}")
    }

    /// Writes a profile's begin.
    fn head(&mut self, kind: &str, name: &str, end: u64) -> io::Result<()> {
        write!(self.out, r#"{{"type":"{kind}","name":"#)?;
        self.text(name)?;
        write!(self.out, r#","unit":"nanoseconds","startValue":0,"endValue":{end},"#)
    }

    /// Writes the streams' profiles. All of them begin with the first operation and end with the last.
    fn timelines(&mut self, trace: &mut Trace<'_>) -> io::Result<()> {
        let mut streams: Vec<_> = std::mem::take(&mut self.streams).into_iter().collect();
        streams.sort_unstable_by_key(|(key, _)| *key);
        streams.iter_mut().for_each(|(_, timeline)| timeline::sort(&mut timeline.executed));
        let all = || streams.iter().flat_map(|(_, timeline)| &timeline.executed);
        let first = all().map(|executed| executed.start_ns).min().unwrap_or(0);
        let last = all().map(|executed| executed.end_ns.0).max().unwrap_or(0);
        for (key, timeline) in streams {
            // The name comes before the edges, so what does not nest is counted first.
            let unnested = timeline::nest(&timeline.executed, |_| Ok(()))?;
            self.out.write_all(b",\n")?;
            let mut name = stream_name(key, &timeline, trace);
            let left_out = timeline.left_out + unnested;
            if left_out > 0 {
                let shown = timeline.executed.len() as u64 - unnested;
                name += &format!(" ({shown} of {} operations)", shown + left_out);
                trace.warnings.push(format!("timeline of {name}"));
            }
            self.head("evented", &name, last.saturating_sub(first))?;
            self.out.write_all(br#""events":["#)?;
            let mut separator: &[u8] = b"\n";
            let out = &mut self.out;
            timeline::nest(&timeline.executed, |edge| {
                out.write_all(separator)?;
                separator = b",\n";
                let r#type = if edge.is_begin { "O" } else { "C" };
                let at = edge.at_ns.saturating_sub(first);
                Ok(serde_json::to_writer(&mut *out, &JsonEdge { r#type, frame: edge.frame, at })?)
            })?;
            self.out.write_all(b"]}")?;
        }
        Ok(())
    }
}

/// A stream's name, with its device, and its process where there are several.
fn stream_name(key: [u32; 4], timeline: &StreamTimeline, trace: &Trace<'_>) -> String {
    let [process, device, _, number] = key;
    let mut name = match timeline.stream {
        0 => format!("stream {number}"),
        stream => trace.stream_name(process, stream).to_owned(),
    };
    name += &format!(", {}", trace.device_name(process, device));
    if trace.totals.processes.len() > 1 {
        name += &format!(", {}", trace.process_name(process));
    }
    name
}
