//! The list of the traces in a folder, for people: when each was recorded, its size, its path, the program.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use gputrace_collector::batch::{Batch, SessionBegin};
use gputrace_collector::command_line;
use gputrace_collector::report::readable_bytes;
use gputrace_collector::trace_file::TraceReader;

use crate::cli::printable;
use crate::cli::trace_folder::Found;

/// Letters of a command line that are shown.
const PROGRAM_LETTERS_MAX: usize = 40;

/// A heading and a line for each trace, the newest first as they come.
pub fn text(folder: &Path, traces: &[Found]) -> String {
    let plural = if traces.len() == 1 { "" } else { "s" };
    let folder = printable::name(folder);
    let mut text = format!("{folder} holds {} trace{plural}, the newest first:\n\n", traces.len());
    let paths: Vec<String> = traces.iter().map(|trace| printable::name(&trace.path)).collect();
    let widest = paths.iter().map(|path| path.chars().count()).max().unwrap_or(0);
    let _ = writeln!(text, "{:<19}  {:>9}  {:<widest$}  Program", "Begun", "Size", "Trace");
    for (trace, path) in traces.iter().zip(&paths) {
        let (begun, program) = match session_begin(trace) {
            Ok(begin) => (UNIX_EPOCH + std::time::Duration::from_nanos(begin.realtime_ns), program(&begin)),
            Err(why) => (trace.modified, format!("({why})")),
        };
        let _ = writeln!(
            text,
            "{}  {:>9}  {path:<widest$}  {program}",
            local_time(begun),
            readable_bytes(trace.bytes)
        );
    }
    text
}

/// The first block of the trace, which is read without the rest.
fn session_begin(trace: &Found) -> Result<SessionBegin, &'static str> {
    let first = trace.files.first().ok_or("no file")?;
    let mut reader = TraceReader::open(first).map_err(|_| "cannot be read")?;
    match reader.next() {
        Some(Batch::SessionBegin(begin)) => Ok(begin),
        _ => Err("damaged at its beginning"),
    }
}

/// The program without its folder, and its arguments as far as there is space.
fn program(begin: &SessionBegin) -> String {
    let mut command = command_line::masked(&begin.command);
    if let Some(program) = command.first_mut() {
        *program = program.rsplit('/').next().unwrap_or_default().to_owned();
    }
    let line = printable::name(command.join(" "));
    if line.chars().count() <= PROGRAM_LETTERS_MAX {
        return line;
    }
    line.chars().take(PROGRAM_LETTERS_MAX - 1).collect::<String>() + "…"
}

/// `2026-01-31 23:59:59` in the user's time zone.
fn local_time(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = libc::time_t::try_from(seconds).unwrap_or(0);
    // SAFETY: a tm of zeroes is a valid value.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to locals that outlive the call; localtime_r keeps neither.
    if unsafe { libc::localtime_r(&raw const seconds, &raw mut local) }.is_null() {
        return "-".to_owned();
    }
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        local.tm_year + 1900,
        local.tm_mon + 1,
        local.tm_mday,
        local.tm_hour,
        local.tm_min,
        local.tm_sec
    )
}
