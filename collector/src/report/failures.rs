//! What failed for good, and what was in flight when a process failed or vanished: as data and as
//! the lines that people read.

use serde::Serialize;

use gputrace_wire::call::Detail;

use crate::batch::ProcessEnd;
use crate::label::units::{bytes, count, duration};
use crate::label::{LEGACY_STREAM, Labels, PER_THREAD_STREAM, StackNames};
use crate::model::in_flight::{OLDEST_SHOWN, StreamInFlight};
use crate::model::operation::HostCall;
use crate::model::{Process, Totals};
use crate::names::line_safe;
use crate::report::PlaceReport;
use crate::report::failed_call::FailedCall;
use crate::report::lines::innermost;

/// What the text has room for; the data has all.
const PROCESSES_SHOWN: usize = 3;
const STREAMS_SHOWN: usize = 4;
const FRAMES_SHOWN: usize = 3;

/// The first call of a process that returned an error after which its context is lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FailureReport {
    #[serde(flatten)]
    pub failed: FailedCall,
    /// When the call returned, since tracing of the process began.
    pub at_ns: u64,
    pub tid: Option<u32>,
    pub thread_name: String,
    /// Where the call was made: the innermost frames, innermost first.
    pub stack: Vec<PlaceReport>,
}

/// What was not known to have finished in a stream when its process failed or vanished.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct InFlightReport {
    pub pid: u32,
    /// Whether the process vanished; else a call had failed.
    pub vanished: bool,
    /// Device ordinal.
    pub device: u32,
    /// As device records number it, if one came.
    pub stream: Option<u32>,
    pub stream_handle: String,
    /// What the program calls it, if it does.
    pub stream_name: Option<String>,
    /// `records` or, where there were none, `waits`.
    pub known_by: &'static str,
    pub operations: u64,
    /// Whether there may have been more.
    pub at_least: bool,
    pub newest_first: Vec<InFlightCall>,
    /// How many are left out before the last four, the oldest.
    pub left_out: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct InFlightCall {
    /// Of a kernel its short name.
    pub name: String,
    /// When the call was made, since tracing of the process began.
    pub at_ns: u64,
    pub tid: Option<u32>,
    /// Of a kernel.
    pub grid: Option<[u32; 3]>,
    pub block: Option<[u16; 3]>,
    /// Of a copy or memset.
    pub bytes: Option<u64>,
    /// Where the call was made: the innermost frames, innermost first.
    pub stack: Vec<PlaceReport>,
}

pub(super) fn failures(totals: &Totals, stacks: &mut StackNames<'_>) -> Vec<FailureReport> {
    totals.processes.iter().filter_map(|process| failure(process, stacks)).collect()
}

fn failure(process: &Process, stacks: &mut StackNames<'_>) -> Option<FailureReport> {
    let call = process.failure.as_ref()?;
    let thread = process.definitions.thread(call.thread);
    Some(FailureReport {
        failed: FailedCall::new(process, call),
        at_ns: process.since_begin_ns(call.start_ns.saturating_add(call.duration_ns)),
        tid: thread.map(|thread| thread.tid),
        thread_name: thread.map_or_else(String::new, |thread| thread.name.to_owned()),
        stack: innermost(stacks, process.number, call.stack),
    })
}

pub(super) fn in_flight(totals: &Totals, labels: &mut Labels<'_>) -> Vec<InFlightReport> {
    if totals.processes.iter().all(|process| process.in_flight.streams.is_empty()) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for process in &totals.processes {
        for stream in &process.in_flight.streams {
            all.push(in_stream(process, stream, labels));
        }
    }
    all
}

fn in_stream(process: &Process, stream: &StreamInFlight, labels: &mut Labels<'_>) -> InFlightReport {
    let all = &process.in_flight;
    let handle = process.definitions.stream(stream.stream).map_or(0, |stream| stream.handle);
    InFlightReport {
        pid: process.begin.pid,
        vanished: matches!(process.end, Some((ProcessEnd::Vanished, _))),
        device: stream.device,
        stream: stream.record_stream,
        stream_handle: match handle {
            LEGACY_STREAM => "default".to_owned(),
            PER_THREAD_STREAM => "per-thread default".to_owned(),
            handle => format!("{handle:#x}"),
        },
        known_by: if all.by_waits_only { "waits" } else { "records" },
        stream_name: Some(process.definitions.label(stream.stream).to_owned())
            .filter(|name| !name.is_empty()),
        operations: stream.operations,
        at_least: all.at_least,
        newest_first: stream.calls.iter().map(|call| in_flight_call(process, call, labels)).collect(),
        left_out: stream.left_out,
    }
}

fn in_flight_call(process: &Process, call: &HostCall, labels: &mut Labels<'_>) -> InFlightCall {
    let (name, shape, bytes) = match &call.detail {
        Detail::Launch(launch) => {
            let name = labels.kernels.function(process.number, launch.function).short.to_string();
            (name, Some((launch.grid, launch.block)), None)
        }
        Detail::Copy(copy) => ("copy".to_owned(), None, Some(copy.bytes)),
        Detail::Fill { bytes, .. } => ("memset".to_owned(), None, Some(*bytes)),
        _ => ("graph launch".to_owned(), None, None),
    };
    InFlightCall {
        name,
        at_ns: process.since_begin_ns(call.start_ns),
        tid: process.definitions.thread(call.thread).map(|thread| thread.tid),
        grid: shape.map(|(grid, _)| grid),
        block: shape.map(|(_, block)| block),
        bytes,
        stack: innermost(&mut labels.stacks, process.number, call.stack),
    }
}

impl FailureReport {
    fn line(&self) -> String {
        let thread = match self.tid {
            Some(tid) if self.thread_name.is_empty() => format!(" on thread {tid}"),
            Some(tid) => format!(" on thread {tid} ({})", line_safe(&self.thread_name)),
            None => String::new(),
        };
        let (call, at) = (line_safe(&self.failed.call), duration(self.at_ns));
        format!("process {}: {call} returned {} after {at}{thread}", self.failed.pid, self.failed.error)
    }
}

/// `in store loop.py:12, called by main loop.py:30, <module> loop.py:41`, as far as there is room.
fn where_text(stack: &[PlaceReport]) -> Option<String> {
    let frames: Vec<String> =
        stack.iter().take(FRAMES_SHOWN).map(|frame| line_safe(&frame.text()).into_owned()).collect();
    let (innermost, callers) = frames.split_first()?;
    let callers =
        if callers.is_empty() { String::new() } else { format!(", called from {}", callers.join(", ")) };
    Some(format!("{innermost}{callers}"))
}

/// With whether a line begins something, and does not go on with what is above it.
pub(super) fn failure_lines(failures: &[FailureReport]) -> Vec<(bool, String)> {
    let mut lines: Vec<(bool, String)> = Vec::new();
    for failure in failures.iter().take(PROCESSES_SHOWN) {
        lines.push((true, failure.line()));
        lines.extend(where_text(&failure.stack).map(|place| (false, format!("at {place}"))));
        lines.extend(failure.failed.advice.clone().map(|advice| (false, advice)));
    }
    if let more @ 1.. = failures.len().saturating_sub(PROCESSES_SHOWN) {
        lines.push((true, format!("and in {} more processes", count(more as u64))));
    }
    lines
}

impl InFlightReport {
    /// `stream 13: steady ×3, bad_store`, newest first.
    fn line(&self) -> String {
        let name = match (&self.stream_name, self.stream) {
            (Some(name), _) => format!("stream {}", line_safe(name)),
            (None, Some(stream)) => format!("stream {stream}"),
            (None, None) if self.stream_handle.starts_with("0x") => format!("stream {}", self.stream_handle),
            (None, None) => format!("{} stream", self.stream_handle),
        };
        let oldest = match self.left_out {
            0 => self.newest_first.len(),
            _ => self.newest_first.len().saturating_sub(OLDEST_SHOWN),
        };
        let (newest, oldest) = self.newest_first.split_at_checked(oldest).unwrap_or_default();
        let mut parts = repeated(newest);
        if self.left_out > 0 {
            parts.push(format!("{} more", count(self.left_out)));
        }
        parts.extend(repeated(oldest));
        format!("{name}: {}", parts.join(", "))
    }

    /// Where the oldest was asked for, which is what the device was at.
    fn oldest_line(&self) -> Option<String> {
        let oldest = self.newest_first.last()?;
        let place = where_text(&oldest.stack)?;
        let which = if self.operations == 1 { "" } else { "the oldest " };
        Some(format!("{which}at {place}"))
    }
}

/// Equal neighbours as one.
fn repeated(calls: &[InFlightCall]) -> Vec<String> {
    let same = |a: &InFlightCall, b: &InFlightCall| a.name == b.name && a.bytes == b.bytes;
    let part = |calls: &[InFlightCall]| {
        let call = calls.first()?;
        let size = call.bytes.map_or_else(String::new, |size| format!(" of {}", bytes(size)));
        let times = if calls.len() > 1 { format!(" ×{}", calls.len()) } else { String::new() };
        Some(format!("{}{size}{times}", line_safe(&call.name)))
    };
    calls.chunk_by(same).filter_map(part).collect()
}

pub(super) fn in_flight_lines(all: &[InFlightReport]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut processes = all.chunk_by(|a, b| a.pid == b.pid);
    for streams in processes.by_ref().take(PROCESSES_SHOWN) {
        let Some(first) = streams.first() else { continue };
        let operations = streams.iter().map(|stream| stream.operations).fold(0, u64::saturating_add);
        let or_more = if first.at_least { " or more" } else { "" };
        let noun = if operations == 1 && !first.at_least { "operation" } else { "operations" };
        let ended = if first.vanished { ", which vanished" } else { "" };
        let known = match first.known_by {
            "waits" => ", as far as its waits tell",
            _ => "",
        };
        let (operations, pid) = (count(operations), first.pid);
        lines.push(format!("{operations}{or_more} {noun} of process {pid}{ended}{known}, newest first"));
        for stream in streams.iter().take(STREAMS_SHOWN) {
            lines.push(stream.line());
            lines.extend(stream.oldest_line());
        }
        if let more @ 1.. = streams.len().saturating_sub(STREAMS_SHOWN) {
            lines.push(format!("and {} more streams", count(more as u64)));
        }
    }
    if let more @ 1.. = processes.count() {
        lines.push(format!("and of {} more processes", count(more as u64)));
    }
    lines
}
