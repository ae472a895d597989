//! Writes the files that a recording leaves beside its trace, and makes the messages about them.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::report::{bytes, grouped_count};
use gputrace_collector::session::{Recording, numbered};

use crate::cli::analysis::Analysis;
use crate::cli::failure::Failure;
use crate::cli::otlp::Sending;
use crate::cli::output_folder::{DRAWING, FOLDED, IDLE_DRAWING, OutputFolder, SUMMARY, TRACE, write_whole};
use crate::cli::printable;
use crate::cli::settings::Flames;

/// What the text on stderr has besides the summary.
#[derive(Clone, Copy, Debug, Default)]
pub struct Talk<'a> {
    /// Whether the summary shows what only experts look for.
    pub verbose: bool,
    /// Why no CUDA call was seen, if none was.
    pub why_nothing: Option<&'a str>,
}

/// Writes the outputs and returns the text to print: the summary, then what went wrong, and last
/// what was written, what was lost and which file to open.
pub fn finish(
    recording: &Recording<Aggregates>,
    folder: &OutputFolder,
    json: Option<&Path>,
    sending: Sending,
    flames: &Flames,
    talk: Talk<'_>,
) -> String {
    let analysis = Analysis::new(&recording.totals, &recording.sink, flames);
    let mut failures = write_drawings(&analysis, |name, contents| folder.write(name, contents));
    // It sent while the drawings were made.
    let sent = sending.finish();
    let sending = sent.text(folder.path());
    failures.extend(folder.write(SUMMARY, (analysis.summary(talk.verbose) + &sending).as_bytes()).err());
    if let Some(json) = json {
        failures.extend(write_whole(json, analysis.json(sent.status.as_ref()).as_bytes()).err());
    }
    failures.extend(recording.trace_error.as_ref().map(Failure::from));
    let mut text = analysis.summary_on(&io::stderr(), talk.verbose);
    for refusal in &recording.refused {
        let _ = writeln!(text, "gputrace: warning: not recorded: {refusal}");
    }
    for dump in &recording.dumps {
        if let Err(why) = &dump.result {
            let _ = writeln!(text, "gputrace: warning: no dump on {}: {why}", dump.reason.name());
        }
    }
    let dumps: Vec<_> = recording.dumps.iter().filter_map(|dump| dump.result.as_ref().ok()).collect();
    if let Some(newest) = dumps.last() {
        let number = dumps.len();
        let _ = writeln!(
            text,
            "gputrace: dumped {number} before the end, the newest to {}",
            printable::name(newest)
        );
    }
    text += &sending;
    for failure in &failures {
        let _ = writeln!(text, "{failure}");
    }
    if let Some(why) = talk.why_nothing {
        let _ = writeln!(text, "{why}");
    }
    let _ = writeln!(text, "{}", last_line(&analysis, recording, folder.path(), failures.is_empty()));
    text
}

/// Writes what belongs to the closed file of that number of a rotated trace.
pub fn write_numbered(analysis: &Analysis, folder: &Path, number: u32) -> Vec<Failure> {
    let write = |name: &str, contents: &[u8]| write_whole(&numbered(&folder.join(name), number), contents);
    let mut failures = write_drawings(analysis, write);
    failures.extend(write(SUMMARY, analysis.summary(false).as_bytes()).err());
    failures
}

/// Writes every file, even if one fails.
pub fn write(analysis: &Analysis, folder: &OutputFolder) -> Vec<Failure> {
    let mut failures = write_drawings(analysis, |name, contents| folder.write(name, contents));
    failures.extend(folder.write(SUMMARY, analysis.summary(false).as_bytes()).err());
    failures
}

fn write_drawings(analysis: &Analysis, write: impl Fn(&str, &[u8]) -> Result<(), Failure>) -> Vec<Failure> {
    let idle = analysis.idle().map(|idle| write(IDLE_DRAWING, idle.svg().as_bytes()));
    let flame = analysis.flame();
    let results = [write(FOLDED, flame.folded().as_bytes()), write(DRAWING, flame.svg().as_bytes())];
    results.into_iter().chain(idle).filter_map(Result::err).collect()
}

/// What was written, what was lost and which file to open.
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
        lost.push("the trace, which was removed or moved".to_owned());
    }
    if !recording.refused.is_empty() {
        lost.push("the processes that are named above as not recorded".to_owned());
    }
    // Not lost: the other outputs cover it, as --max-size asks.
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
    // A drawing of nothing is not worth opening.
    let open = if all_written && analysis.has_events() {
        format!("; open {} in a browser", printable::name(folder.join(DRAWING)))
    } else {
        String::new()
    };
    format!(
        "gputrace: {written} {} ({} events, {lost}{limited}){open}",
        printable::name(folder),
        analysis.events()
    )
}
