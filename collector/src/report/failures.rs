//! Errors after which a context is lost, and the operations in flight when a process failed or vanished: as
//! data and as the lines of the summary.

use serde::Serialize;

use gputrace_wire::call::Detail;

use crate::batch::ProcessEnd;
use crate::label::units::{bytes, count, duration};
use crate::label::{Labels, StackNames};
use crate::model::definitions::{LEGACY_STREAM, PER_THREAD_STREAM};
use crate::model::in_flight::{OLDEST_SHOWN, StreamInFlight};
use crate::model::operation::HostCall;
use crate::model::{Process, Totals};
use crate::names::line_safe;
use crate::report::CodeLocation;
use crate::report::failed_call::FailedCall;
use crate::report::lines::innermost;

/// How many the summary shows. The data has all.
const PROCESSES_SHOWN: usize = 3;
const STREAMS_SHOWN: usize = 4;
const FRAMES_SHOWN: usize = 3;

/// A process's first call that returned an error after which the context is lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailureReport {
    #[serde(flatten)]
    pub failed: FailedCall,
    /// When the call returned, since tracing of the process began.
    pub at_ns: u64,
    pub tid: Option<u32>,
    pub thread_name: String,
    /// The innermost frames of the calling stack, innermost first.
    pub stack: Vec<CodeLocation>,
}

/// The operations of a stream that were not known to have finished when the process failed or vanished.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InFlightReport {
    pub pid: u32,
    /// Whether the process vanished. If not, a call had failed.
    pub vanished: bool,
    /// Device ordinal.
    pub device: u32,
    /// The stream's number in device records, if there is a record.
    pub stream: Option<u32>,
    pub stream_handle: String,
    /// The label that the program gave it, if any.
    pub stream_name: Option<String>,
    /// What showed which operations had finished: `records`, or `waits` if there were no records.
    pub known_by: &'static str,
    pub operations: u64,
    /// Whether there may have been more.
    pub at_least: bool,
    pub newest_first: Vec<InFlightCall>,
    /// How many are left out of `newest_first`, before its last four, which are the oldest.
    pub left_out: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InFlightCall {
    /// A kernel's short name, else the kind of operation.
    pub name: String,
    /// When the call was made, since tracing of the process began.
    pub at_ns: u64,
    pub tid: Option<u32>,
    /// Only of a kernel.
    pub grid: Option<[u32; 3]>,
    pub block: Option<[u16; 3]>,
    /// Only of a copy or memset.
    pub bytes: Option<u64>,
    /// The innermost frames of the calling stack, innermost first.
    pub stack: Vec<CodeLocation>,
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

/// The innermost frames as one line: `loop.py:12 store, called from loop.py:30 main, loop.py:41 <module>`.
fn stack_text(stack: &[CodeLocation]) -> Option<String> {
    let frames: Vec<String> =
        stack.iter().take(FRAMES_SHOWN).map(|frame| line_safe(&frame.text()).into_owned()).collect();
    let (innermost, callers) = frames.split_first()?;
    let callers =
        if callers.is_empty() { String::new() } else { format!(", called from {}", callers.join(", ")) };
    Some(format!("{innermost}{callers}"))
}

/// Lines of the summary. The flag is true for the first line of a failure.
pub(super) fn failure_lines(failures: &[FailureReport]) -> Vec<(bool, String)> {
    let mut lines: Vec<(bool, String)> = Vec::new();
    for failure in failures.iter().take(PROCESSES_SHOWN) {
        lines.push((true, failure.line()));
        lines.extend(stack_text(&failure.stack).map(|stack| (false, format!("at {stack}"))));
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

    /// The stack that asked for the oldest operation, which is the one that the device was executing.
    fn oldest_line(&self) -> Option<String> {
        let oldest = self.newest_first.last()?;
        let stack = stack_text(&oldest.stack)?;
        let which = if self.operations == 1 { "" } else { "the oldest " };
        Some(format!("{which}at {stack}"))
    }
}

/// Joins neighbours that are equal.
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
