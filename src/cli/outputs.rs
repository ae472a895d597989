//! The files that a recording leaves beside its trace, and what is said about them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::report::{bytes, grouped_count};
use gputrace_collector::session::Recording;

use crate::cli::analysis::Analysis;
use crate::cli::failure::Failure;
use crate::cli::otlp::Sending;
use crate::cli::output_folder::{OutputFolder, write_whole};
use crate::cli::printable;

pub const TRACE: &str = "trace.gputrace";
const FOLDED: &str = "flame.folded";
const DRAWING: &str = "flame.svg";
const SUMMARY: &str = "summary.txt";

/// Every file that a run leaves in its folder.
pub const ALL: [&str; 4] = [TRACE, FOLDED, DRAWING, SUMMARY];

/// Writes the outputs and returns what is to be said: the summary, what went wrong, and last
/// what was made and what was lost.
pub fn finish(
    recording: &Recording<Aggregates>,
    folder: &OutputFolder,
    json: Option<&Path>,
    sending: Sending,
) -> String {
    let analysis = Analysis::new(&recording.totals, &recording.sink);
    let mut failures = write_drawings(&analysis, folder);
    // It was sending meanwhile.
    let sent = sending.finish();
    let sending = sent.text(folder.path());
    failures.extend(folder.write(SUMMARY, (analysis.summary() + &sending).as_bytes()).err());
    if let Some(json) = json {
        failures.extend(write_whole(json, analysis.json_with(sent.status.as_ref()).as_bytes()).err());
    }
    failures.extend(recording.trace_error.as_ref().map(Failure::from));
    let mut told = analysis.summary();
    for refusal in &recording.refused {
        let _ = writeln!(told, "gputrace: warning: not recorded: {refusal}");
    }
    for dump in &recording.dumps {
        if let Err(why) = &dump.result {
            let _ = writeln!(told, "gputrace: warning: no dump on {}: {why}", dump.reason.name());
        }
    }
    let dumps: Vec<_> = recording.dumps.iter().filter_map(|dump| dump.result.as_ref().ok()).collect();
    if let Some(newest) = dumps.last() {
        let number = dumps.len();
        let _ = writeln!(
            told,
            "gputrace: dumped {number} before the end, the newest to {}",
            printable::name(newest)
        );
    }
    told += &sending;
    for failure in &failures {
        let _ = writeln!(told, "{failure}");
    }
    let _ = writeln!(told, "{}", last_line(&analysis, recording, folder.path(), failures.is_empty()));
    told
}

/// One's failure does not keep the others from being written.
pub fn write(analysis: &Analysis, folder: &OutputFolder) -> Vec<Failure> {
    let mut failures = write_drawings(analysis, folder);
    failures.extend(folder.write(SUMMARY, analysis.summary().as_bytes()).err());
    failures
}

fn write_drawings(analysis: &Analysis, folder: &OutputFolder) -> Vec<Failure> {
    let drawing = analysis.svg().and_then(|svg| folder.write(DRAWING, &svg));
    let results = [folder.write(FOLDED, analysis.folded().as_bytes()), drawing];
    results.into_iter().filter_map(Result::err).collect()
}

/// What was made and what was lost.
fn last_line(
    analysis: &Analysis,
    recording: &Recording<Aggregates>,
    folder: &Path,
    all_written: bool,
) -> String {
    let lost = analysis.losses();
    let mut lost: Vec<_> = lost.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if recording.trace_error.is_some() {
        lost.push(format!("the trace after its first {} bytes", recording.trace_bytes));
    }
    if fs::symlink_metadata(folder.join(TRACE)).is_err() {
        lost.push("the trace, which was removed or moved away meanwhile".to_owned());
    }
    // Not lost: it is in the other outputs, as was asked.
    let limited = recording.size_limit.map_or_else(String::new, |limit| {
        let entries = grouped_count(limit.left_out.entries);
        format!(
            "; {TRACE} has the first {} and lacks {entries} entries, the rest covers all",
            bytes(limit.max_bytes)
        )
    });
    let lost =
        if lost.is_empty() { "nothing lost".to_string() } else { format!("lost: {}", lost.join(", ")) };
    let written = if all_written { "wrote" } else { "wrote in part" };
    format!("gputrace: {written} {} ({} events, {lost}{limited})", printable::name(folder), analysis.events())
}
