//! Calls that failed, by program line: as data and as the lines of the summary.

use std::collections::{BTreeMap, BTreeSet};

use gputrace_wire::call::Detail;
use serde::Serialize;

use crate::aggregate::{Aggregates, Failure, FailureInProcess, FailureKey};
use crate::failed_calls::{self, Arguments};
use crate::label::Labels;
use crate::label::units::{bytes, count, duration};
use crate::model::{Process, Totals};
use crate::names::{EndedName, line_safe};
use crate::report::failed_call::FailedCall;
use crate::report::lines::{charged_location, innermost};
use crate::report::words::plural;
use crate::report::{CodeLocation, FailureReport};

/// How many the summary shows. The data has all.
const SHOWN: usize = 3;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ErrorsReport {
    /// Calls that failed.
    pub calls: u64,
    /// Calls that failed because the context had been lost before.
    pub after_context_lost: u64,
    /// Allocations that succeeded when asked for again.
    pub given_later: u64,
    /// Calls beyond the failures that are told apart.
    pub left_out: u64,
    /// The earliest first.
    pub list: Vec<ErrorReport>,
    /// Calls that returned an error by design, such as a query that is not ready.
    pub answers: Vec<AnswerReport>,
    pub answers_left_out: u64,
}

/// Calls of one driver entry that returned the same error at the same program line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ErrorReport {
    /// Its `pid` is 0 where processes are told together.
    #[serde(flatten)]
    pub failed: FailedCall,
    /// The name that they have in common; only there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndedName>,
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
    /// When the last call returned, on the clock that all processes share.
    #[serde(skip)]
    last_ns: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AnswerReport {
    /// 0 where processes are told together.
    pub pid: u32,
    /// The name that they have in common; only there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndedName>,
    pub call: String,
    pub error: &'static str,
    pub calls: u64,
    pub why: &'static str,
}

pub(super) fn errors(totals: &Totals, aggregates: &Aggregates, labels: &mut Labels<'_>) -> ErrorsReport {
    let failures = &aggregates.failures;
    let (answers, answers_left_out) = failures.answers();
    let mut answers_evicted = 0;
    let answers = answers.filter_map(|(process, api, status, calls, answer)| {
        let Some(process) = totals.named_process(process) else {
            answers_evicted += calls;
            return None;
        };
        let call = process.definitions.call_name(api).to_owned();
        Some(AnswerReport {
            pid: process.begin.pid,
            ended: process.ended_name(),
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
        answers_left_out: answers_left_out + answers_evicted,
        ..ErrorsReport::default()
    };
    if failures.calls == 0 {
        return all;
    }
    let mut positions: BTreeMap<(u32, u32, u16, Option<CodeLocation>), usize> = BTreeMap::new();
    for (key, failure) in failures.sorted() {
        let Some(process) = totals.named_process(key.process) else {
            all.left_out += failure.calls;
            continue;
        };
        let line = charged_location(&mut labels.stacks, key.process, key.stack);
        let details = failure.in_process(key, process);
        all.after_context_lost += details.after_context_lost;
        all.given_later += failure.given_later;
        let same = (key.process, key.api, key.status, line.clone());
        let position = *positions.entry(same).or_insert(all.list.len());
        match all.list.get_mut(position) {
            Some(known) => known.add(failure, &details),
            None => {
                let error = error_report(process, labels, key, failure, details);
                all.list.push(ErrorReport { line, ..error });
            }
        }
    }
    all
}

fn error_report(
    process: &Process,
    Labels { kernels, stacks, .. }: &mut Labels<'_>,
    key: FailureKey,
    failure: &Failure,
    details: FailureInProcess,
) -> ErrorReport {
    let (call, definitions) = (&failure.first, &process.definitions);
    let thread = definitions.thread(call.thread);
    let mut arguments = details.arguments;
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
        ended: process.ended_name(),
        calls: failure.calls,
        after_context_lost: details.after_context_lost,
        given_later: failure.given_later,
        frees_before: failure.frees_before,
        first_at_ns: details.first_at_ns,
        last_at_ns: details.last_at_ns,
        tid: thread.filter(|_| !process.stands_for_several()).map(|thread| thread.tid),
        thread_name: thread.map_or_else(String::new, |thread| thread.name.to_owned()),
        arguments,
        line: None,
        stack: innermost(stacks, process.number, key.stack),
        of_lost_context: details.of_lost_context,
        last_ns: failure.last_ns,
    }
}

impl ErrorReport {
    /// Adds the same failure at the same line, reached by another stack.
    fn add(&mut self, failure: &Failure, details: &FailureInProcess) {
        self.calls += failure.calls;
        self.after_context_lost += details.after_context_lost;
        self.given_later += failure.given_later;
        self.frees_before = self.frees_before.max(failure.frees_before);
        self.of_lost_context += details.of_lost_context;
        // Of several processes, each has a beginning of its own.
        if failure.last_ns > self.last_ns {
            (self.last_ns, self.last_at_ns) = (failure.last_ns, details.last_at_ns);
        }
        if failure.most_bytes > 0 {
            self.arguments.bytes = self.arguments.bytes.max(Some(failure.most_bytes));
        }
    }

    /// How many of these calls the lines about `failures` do not cover. Those cover every call that lost a
    /// context, or failed after that, with the same error.
    fn uncovered(&self, failures: &[FailureReport]) -> u64 {
        match failures.iter().any(|failure| failure.failed.code == self.failed.code) {
            true => self.calls.saturating_sub(self.of_lost_context),
            false => self.calls,
        }
    }

    fn line(&self, names_process: bool, calls: u64) -> String {
        let process = match &self.ended {
            Some(several) => format!("{}: ", line_safe(&several.to_string())),
            None if names_process => format!("process {}: ", self.failed.pid),
            None => String::new(),
        };
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

/// Lines of the summary. The flag is true for an error's first line. `failures` are shown above these lines.
pub(super) fn error_lines(all: &ErrorsReport, failures: &[FailureReport]) -> Vec<(bool, String)> {
    let uncovered = |error| (error, ErrorReport::uncovered(error, failures));
    let mut own: Vec<(&ErrorReport, u64)> =
        all.list.iter().map(uncovered).filter(|(_, calls)| *calls > 0).collect();
    // What fails now before what failed in programs that are long gone.
    own.sort_by_key(|(error, _)| error.ended.is_some());
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
