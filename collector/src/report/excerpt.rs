//! Sessions that a trace holds in part: the last part, from a flight recorder, or the first part, where the
//! size of the trace file was limited; and the counts of what is left out.

use serde::Serialize;

use crate::batch::LeftOut;
use crate::label::units::{bytes, count, duration};
use crate::model::{Series, Totals};
use crate::names::line_safe;
use crate::report::words::plural;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExcerptReport {
    /// The length that the user asked for.
    pub window_ns: u64,
    /// From the end of the first event in the excerpt to the end of the last.
    pub span_ns: u64,
    /// The length of the whole session.
    pub session_ns: u64,
    /// Why the excerpt was written: `exit`, `crash` with the signal's name if known, `signal` or `asked`.
    pub reason: String,
    pub left_out: LeftOut,
}

/// A report for each session that is an excerpt.
pub(super) fn excerpts(totals: &Totals) -> Vec<ExcerptReport> {
    let sessions = totals.sessions.iter();
    let excerpts = sessions.filter_map(|session| Some((session, session.excerpt.as_ref()?)));
    excerpts
        .map(|(session, excerpt)| ExcerptReport {
            window_ns: excerpt.window_ns,
            span_ns: session.length_ns(),
            session_ns: session.whole_length_ns(),
            reason: excerpt.reason.clone(),
            left_out: excerpt.left_out,
        })
        .collect()
}

/// A session of which the trace file holds the first part only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SizeLimitReport {
    pub max_bytes: u64,
    /// Whether `left_out` counts everything. It does if the session was closed in order.
    pub is_counted: bool,
    pub left_out: LeftOut,
}

/// The files that were read of a session whose trace was cut into files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SeriesReport {
    pub first_file: u32,
    pub last_file: u32,
    /// Files before the last one that were not read: deleted by `--keep`, or not given.
    pub missing_files: u32,
    /// Whether a later file, which was not read, goes on with the session.
    pub goes_on: bool,
}

pub(super) fn series(totals: &Totals) -> Vec<SeriesReport> {
    let series = totals.sessions.iter().filter_map(|session| session.series);
    let report = |Series { first, last, missing, goes_on, .. }: Series| SeriesReport {
        first_file: first,
        last_file: last,
        missing_files: missing,
        goes_on,
    };
    series.map(report).collect()
}

impl SeriesReport {
    pub(super) fn is_whole(&self) -> bool {
        self.missing_files == 0 && !self.goes_on
    }

    /// For people; `None` where every file was read.
    pub(super) fn line(&self) -> Option<String> {
        if self.is_whole() {
            return None;
        }
        let files = match (self.first_file, self.last_file) {
            (first, last) if first == last => format!("file {first}"),
            (first, last) => format!("files {first} to {last}"),
        };
        let missing = match self.missing_files {
            0 => String::new(),
            1 => "; 1 file before the last was not read".to_owned(),
            many => format!("; {} files before the last were not read", count(many.into())),
        };
        let goes_on = if self.goes_on { "; the next file goes on" } else { "" };
        Some(format!("{files} of a rotated trace{missing}{goes_on}"))
    }
}

pub(super) fn size_limits(totals: &Totals) -> Vec<SizeLimitReport> {
    let limited = totals.sessions.iter().filter_map(|session| Some((session, session.size_limit?)));
    limited
        .map(|(session, limit)| SizeLimitReport {
            max_bytes: limit.max_bytes,
            is_counted: session.wall_ns.is_some(),
            left_out: limit.left_out,
        })
        .collect()
}

impl SizeLimitReport {
    pub(super) fn line(&self) -> String {
        let limit = bytes(self.max_bytes);
        let mut line = format!("the first {limit} of the trace, as --max-size asked; not in it: ");
        if !self.is_counted {
            return line + "what came later, which nobody counted, since the session was not closed in order";
        }
        let LeftOut { launches, graph_launches, host_calls, device_records, processes, .. } = self.left_out;
        line += &format!(
            "{} launches, {} host calls, {} device records",
            count(launches.saturating_add(graph_launches)),
            count(host_calls),
            count(device_records)
        );
        if processes > 0 {
            line += &format!(", and {} that began later", plural(processes, "process", "processes"));
        }
        line + &self.left_out.of_their_own()
    }
}

impl ExcerptReport {
    /// One line for people: the length, the reason, and what is left out.
    pub(super) fn line(&self) -> String {
        let reason = line_safe(&self.reason);
        let mut line = format!(
            "the last {} of {}, reason: {reason}; {} launches before it are not in it",
            duration(self.window_ns),
            duration(self.session_ns),
            count(self.left_out.launches.saturating_add(self.left_out.graph_launches)),
        );
        if self.left_out.over_capacity > 0 {
            line += &format!(
                ", and {} newer entries for which there was no room",
                count(self.left_out.over_capacity)
            );
        }
        if let processes @ 1.. = self.left_out.processes {
            let processes = plural(processes, "process that ended is", "processes that ended are");
            line += &format!("; {processes} not in it");
        }
        line + &self.left_out.of_their_own()
    }
}

impl LeftOut {
    /// What processes that are not in the trace have lost, for people; nothing if that is nothing.
    fn of_their_own(&self) -> String {
        match self.lost {
            0 => String::new(),
            lost => format!(", of which {} entries were lost", count(lost)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_says_what_processes_lost_that_are_not_there() {
        let left_out = |lost| LeftOut { launches: 5, processes: 1, lost, ..LeftOut::default() };
        let limited =
            |lost| SizeLimitReport { max_bytes: 1 << 20, is_counted: true, left_out: left_out(lost) };
        let expected = "5 launches, 0 host calls, 0 device records, and 1 process that began later";
        assert!(limited(0).line().ends_with(expected), "{}", limited(0).line());
        let expected = format!("{expected}, of which 10,087 entries were lost");
        assert!(limited(10_087).line().ends_with(&expected), "{}", limited(10_087).line());
    }
}
