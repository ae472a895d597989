//! Calls that failed, by program line: as data and as the lines of the summary.

use std::collections::{BTreeMap, BTreeSet};

use gputrace_wire::call::Detail;
use serde::Serialize;

use crate::aggregate::{Aggregates, Failure, FailureKey};
use crate::failed_calls::{self, Arguments};
use crate::label::Labels;
use crate::label::units::{bytes, count, duration};
use crate::model::{Process, Totals};
use crate::names::line_safe;
use crate::report::CodeLocation;
use crate::report::failed_call::FailedCall;
use crate::report::lines::{charged_location, innermost};
use crate::report::words::plural;

/// How many the summary shows. The data has all.
const SHOWN: usize = 3;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorsReport {
    /// Calls that failed.
    pub calls: u64,
    /// Calls that failed because the context had been lost before.
    pub after_context_lost: u64,
    /// Allocations that succeeded when asked for again.
    pub given_later: u64,
    /// Calls beyond the failures that are distinguished.
    pub left_out: u64,
    /// The earliest first.
    pub list: Vec<ErrorReport>,
    /// Calls that returned an error by design, such as a query that is not ready.
    pub answers: Vec<AnswerReport>,
    pub answers_left_out: u64,
}

/// Calls of one driver entry that returned the same error at the same program line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorReport {
    #[serde(flatten)]
    pub failed: FailedCall,
    pub calls: u64,
    pub after_context_lost: u64,
    pub given_later: u64,
    pub frees_before: u64,
    /// When the first and the last of these calls returned, since tracing of the process began.
    pub first_at_ns: u64,
    pub last_at_ns: u64,
    /// The remaining fields are those of the first call.
    pub tid: Option<u32>,
    pub thread_name: String,
    pub arguments: Arguments,
    /// The program line that the call is charged to, if known.
    pub line: Option<CodeLocation>,
    pub stack: Vec<CodeLocation>,
    /// Calls that lost a context, and calls that failed after that.
    #[serde(skip)]
    of_lost_context: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AnswerReport {
    pub pid: u32,
    pub call: String,
    pub error: &'static str,
    pub calls: u64,
    pub why: &'static str,
}

pub(super) fn errors(totals: &Totals, aggregates: &Aggregates, labels: &mut Labels<'_>) -> ErrorsReport {
    let failures = &aggregates.failures;
    let (answers, answers_left_out) = failures.answers();
    let mut answers_of_evicted = 0;
    let answers = answers.filter_map(|(process, api, status, calls, answer)| {
        let Some(process) = totals.process(process) else {
            answers_of_evicted += calls;
            return None;
        };
        let call = process.definitions.call_name(api).to_owned();
        Some(AnswerReport {
            pid: process.begin.pid,
            call,
            error: failed_calls::name(status),
            calls,
            why: answer.why,
        })
    });
    let answers = answers.collect();
    let mut all = ErrorsReport {
        calls: failures.calls,
        left_out: failures.beyond,
        answers,
        answers_left_out: answers_left_out + answers_of_evicted,
        ..ErrorsReport::default()
    };
    if failures.calls == 0 {
        return all;
    }
    let mut positions: BTreeMap<(u32, u32, u16, Option<CodeLocation>), usize> = BTreeMap::new();
    for (key, failure) in failures.sorted() {
        let Some(process) = totals.process(key.process) else {
            all.left_out += failure.calls;
            continue;
        };
        let line = charged_location(&mut labels.stacks, key.process, key.stack);
        let of_lost_context = OfLostContext::new(process, key, failure);
        all.after_context_lost += of_lost_context.after;
        all.given_later += failure.given_later;
        let same = (key.process, key.api, key.status, line.clone());
        let position = *positions.entry(same).or_insert(all.list.len());
        match all.list.get_mut(position) {
            Some(known) => known.add(process, failure, of_lost_context),
            None => {
                let error = error_report(process, labels, key, failure, of_lost_context);
                all.list.push(ErrorReport { line, ..error });
            }
        }
    }
    all
}

/// Calls that return the error with which the process lost its context.
#[derive(Clone, Copy)]
struct OfLostContext {
    all: u64,
    /// Those after the call that lost it.
    after: u64,
}

impl OfLostContext {
    fn new(process: &Process, key: FailureKey, failure: &Failure) -> OfLostContext {
        match &process.failure {
            Some(lost) if lost.status == key.status => {
                let is_first = lost.api == key.api && lost.stack == key.stack;
                OfLostContext { all: failure.calls, after: failure.calls.saturating_sub(u64::from(is_first)) }
            }
            _ => OfLostContext { all: 0, after: 0 },
        }
    }
}

fn error_report(
    process: &Process,
    Labels { kernels, stacks, .. }: &mut Labels<'_>,
    key: FailureKey,
    failure: &Failure,
    of_lost_context: OfLostContext,
) -> ErrorReport {
    let (call, definitions) = (&failure.first, &process.definitions);
    let thread = definitions.thread(call.thread);
    let mut arguments = Arguments::of(call, definitions);
    if let Detail::Launch(launch) = call.detail
        && launch.function != 0
    {
        arguments.kernel = Some(kernels.function(process.number, launch.function).short.to_string());
    }
    if failure.most_bytes > 0 {
        arguments.bytes = Some(failure.most_bytes);
    }
    ErrorReport {
        failed: FailedCall::new(process, call),
        calls: failure.calls,
        after_context_lost: of_lost_context.after,
        given_later: failure.given_later,
        frees_before: failure.frees_before,
        first_at_ns: process.since_begin_ns(call.start_ns.saturating_add(call.duration_ns)),
        last_at_ns: process.since_begin_ns(failure.last_ns),
        tid: thread.map(|thread| thread.tid),
        thread_name: thread.map_or_else(String::new, |thread| thread.name.to_owned()),
        arguments,
        line: None,
        stack: innermost(stacks, process.number, key.stack),
        of_lost_context: of_lost_context.all,
    }
}

impl ErrorReport {
    /// Adds the same failure at the same line, reached by another stack.
    fn add(&mut self, process: &Process, failure: &Failure, of_lost_context: OfLostContext) {
        self.calls += failure.calls;
        self.after_context_lost += of_lost_context.after;
        self.given_later += failure.given_later;
        self.frees_before = self.frees_before.max(failure.frees_before);
        self.of_lost_context += of_lost_context.all;
        self.last_at_ns = self.last_at_ns.max(process.since_begin_ns(failure.last_ns));
        if failure.most_bytes > 0 {
            self.arguments.bytes = self.arguments.bytes.max(Some(failure.most_bytes));
        }
    }

    fn line(&self, names_process: bool, calls: u64) -> String {
        let process = if names_process { format!("process {}: ", self.failed.pid) } else { String::new() };
        let times = if calls > 1 { format!(" {} times", count(calls)) } else { String::new() };
        let location = match &self.line {
            Some(location) => format!(" at {}", line_safe(&location.text())),
            None => String::new(),
        };
        let asked = asked(&self.arguments);
        let asked = if asked.is_empty() { String::new() } else { format!(" ({asked})") };
        let first = if calls > 1 { ", first" } else { "," };
        let thread = self.tid.map_or_else(String::new, |tid| format!(" on thread {tid}"));
        let given = match (self.given_later, calls) {
            (0, _) => String::new(),
            (1, 1) => "; given when asked again".to_owned(),
            (given, _) => format!("; {} given when asked again", count(given)),
        };
        let (call, at) = (line_safe(&self.failed.call), duration(self.first_at_ns));
        format!(
            "{process}{call} returned {}{times}{location}{asked}{first} after {at}{thread}{given}",
            self.failed.error
        )
    }
}

/// `gemm, grid 1×1×1, block 4096×1×1`.
fn asked(arguments: &Arguments) -> String {
    fn sides<T: std::fmt::Display>([x, y, z]: [T; 3]) -> String {
        format!("{x}×{y}×{z}")
    }
    let mut parts: Vec<String> = Vec::new();
    parts.extend(arguments.kernel.as_ref().map(|kernel| line_safe(kernel).into_owned()));
    parts.extend(arguments.grid.map(|grid| format!("grid {}", sides(grid))));
    parts.extend(arguments.block.map(|block| format!("block {}", sides(block))));
    parts.extend(arguments.cluster.map(|cluster| format!("cluster {}", sides(cluster))));
    let shared = arguments.dynamic_shared_bytes.filter(|size| *size > 0);
    parts.extend(shared.map(|size| format!("{} of dynamic shared memory", bytes(size.into()))));
    match (arguments.bytes, arguments.memory.or(arguments.direction)) {
        (Some(size), Some(of)) => parts.push(format!("{} {of}", bytes(size))),
        (Some(size), None) => parts.push(bytes(size)),
        (None, Some(of)) => parts.push(of.to_owned()),
        (None, None) => {}
    }
    parts.extend(arguments.file.as_ref().map(|file| line_safe(file).into_owned()));
    parts.join(", ")
}

/// Lines of the summary. The flag is true for an error's first line. Lost contexts are shown above them.
pub(super) fn error_lines(all: &ErrorsReport) -> Vec<(bool, String)> {
    let own = |error: &'_ ErrorReport| error.calls.saturating_sub(error.of_lost_context);
    let own: Vec<(&ErrorReport, u64)> =
        all.list.iter().map(|error| (error, own(error))).filter(|(_, calls)| *calls > 0).collect();
    let pids: BTreeSet<u32> = own.iter().map(|(error, _)| error.failed.pid).collect();
    let mut lines = Vec::new();
    for (error, calls) in own.iter().take(SHOWN) {
        lines.push((true, error.line(pids.len() > 1, *calls)));
        lines.extend(error.failed.advice.clone().map(|advice| (false, advice)));
    }
    let more = own.iter().skip(SHOWN).fold(all.left_out, |sum, (_, calls)| sum.saturating_add(*calls));
    if more > 0 {
        lines.push((true, format!("and {}, in the JSON by line", plural(more, "more call", "more calls"))));
    }
    if let lost @ 1.. = all.after_context_lost {
        lines.push((true, format!("{} because the context had been lost", plural(lost, "call", "calls"))));
    }
    lines
}
