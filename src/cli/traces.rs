//! Reads the traces that a command was given, through the same pipeline as a live session.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, value_parser};
use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::model::operation::Sink;
use gputrace_collector::stream::replay::{Replay, read_traces};

use crate::cli::analysis::Analysis;
use crate::cli::failure::Failure;
use crate::cli::progress::Progress;
use crate::cli::talk::say;
use crate::cli::{exit_code, outputs, printable};

/// The argument `TRACE…`.
pub fn argument() -> Arg {
    Arg::new("traces")
        .value_name("TRACE")
        .num_args(1..)
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("Trace files; a folder stands for the trace.gputrace in it")
}

/// What was read, and the exit code that says whether it was all there.
#[derive(Debug)]
pub struct Read {
    pub analysis: Analysis,
    pub exit_code: u8,
}

/// The trace files that were named.
pub fn paths(matches: &ArgMatches) -> Vec<PathBuf> {
    let named = matches.get_many::<PathBuf>("traces").into_iter().flatten();
    named.map(|path| if path.is_dir() { path.join(outputs::TRACE) } else { path.clone() }).collect()
}

/// Each file once, whatever its names: read twice, everything in it would count twice.
fn each_once(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    paths.retain(|path| {
        let is_new = fs::metadata(path).map_or(true, |file| seen.insert((file.dev(), file.ino())));
        if !is_new {
            say(format_args!("gputrace: warning: {} is given twice, and read once", printable::name(path)));
        }
        is_new
    });
    paths
}

/// Reads them all. Damage is said on stderr and stops nothing; a file that is no trace does.
pub fn read(matches: &ArgMatches) -> Result<Read, Failure> {
    read_as(matches, |_| {})
}

/// The same, after a change to what was added up.
pub fn read_as(matches: &ArgMatches, change: impl FnOnce(&mut Aggregates)) -> Result<Read, Failure> {
    let (mut replay, exit_code) = replay(matches, Aggregates::default())?;
    change(&mut replay.sink);
    Ok(Read { analysis: Analysis::new(&replay.totals, &replay.sink), exit_code })
}

/// Reads them all into a sink, with the exit code that says whether they were whole.
pub fn replay<S: Sink>(matches: &ArgMatches, sink: S) -> Result<(Replay<S>, u8), Failure> {
    let paths = each_once(paths(matches));
    let mut progress = Progress::new("gputrace: reading".into());
    let replay = read_traces(&paths, sink, &mut |at| {
        progress.at((at.bytes_read, at.bytes_total));
    })?;
    drop(progress);
    for (path, damage) in &replay.damages {
        say(format_args!("gputrace: warning: {} was read in part: {damage}", path.display()));
    }
    let exit_code = if replay.damages.is_empty() { exit_code::SUCCESS } else { exit_code::PARTIAL };
    Ok((replay, exit_code))
}

/// A recording cannot be made again: it is never overwritten by what is made of it, whatever
/// name or link the output has.
pub fn refuse_an_input(output: &Path, inputs: &[PathBuf]) -> Result<(), Failure> {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let Some(output_is) = identity(output) else { return Ok(()) };
    if inputs.iter().all(|input| identity(input) != Some(output_is)) {
        return Ok(());
    }
    let message = format!("cannot write {}: it is one of the traces to read", output.display());
    Err(Failure::new(message).hint("name another file with -o").code(exit_code::USAGE))
}
