//! Reads the traces that a command was given, through the same pipeline as a live session.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, value_parser};
use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::stream::replay::read_traces;

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
    let paths = each_once(paths(matches));
    let mut progress = Progress::new("gputrace: reading".into());
    let mut replay = read_traces(&paths, Aggregates::default(), &mut |at| {
        progress.at((at.bytes_read, at.bytes_total));
    })?;
    drop(progress);
    for (path, damage) in &replay.damages {
        say(format_args!("gputrace: warning: {} was read in part: {damage}", path.display()));
    }
    change(&mut replay.sink);
    let exit_code = if replay.damages.is_empty() { exit_code::SUCCESS } else { exit_code::PARTIAL };
    Ok(Read { analysis: Analysis::new(&replay.totals, &replay.sink), exit_code })
}
