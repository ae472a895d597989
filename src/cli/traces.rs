//! Reads the traces that a command was given, through the same pipeline as a live session.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, value_parser};
use gputrace_collector::aggregate::{Aggregates, WindowPlan, Windowed};
use gputrace_collector::export::{Selected, Trace};
use gputrace_collector::model::sink::Sink;
use gputrace_collector::stream::replay::{Replay, read_traces};

use crate::cli::analysis::Analysis;
use crate::cli::failure::Failure;
use crate::cli::progress::Progress;
use crate::cli::settings::Flames;
use crate::cli::talk::{say, say_text};
use crate::cli::trace_folder::{self, TraceFolder};
use crate::cli::{exit_code, output_folder, printable, selection, trace_list};

/// The argument `TRACE…`. If no trace is named, the newest one in `gputrace-out` is read.
pub fn argument() -> Arg {
    Arg::new("traces")
        .value_name("TRACE")
        .num_args(1..)
        .value_parser(value_parser!(PathBuf))
        .help("Trace files, or folders with a trace each [default: the newest in gputrace-out]")
}

/// The results, and the exit code, which shows whether all traces were read whole.
#[derive(Debug)]
pub struct Read {
    pub analysis: Analysis,
    pub exit_code: u8,
}

/// What was named on the command line.
#[derive(Debug)]
pub enum Named {
    /// Trace files to read.
    Files(Vec<PathBuf>),
    /// One folder with several traces, of which none was chosen: the list of them.
    Several { folder: PathBuf, list: String },
}

/// Finds the traces that were named, or the newest one in `gputrace-out`.
pub fn named(matches: &ArgMatches) -> Result<Named, Failure> {
    let named: Vec<&PathBuf> = matches.get_many("traces").into_iter().flatten().collect();
    if named.is_empty() {
        return newest().map(Named::Files);
    }
    let mut files = Vec::new();
    for path in &named {
        match named_one(path) {
            Named::Files(of_path) => files.extend(of_path),
            several if named.len() == 1 => return Ok(several),
            several => return several.files().map(Named::Files),
        }
    }
    Ok(Named::Files(files))
}

/// The files of one trace that was named, or of a folder with it.
pub fn named_one(path: &Path) -> Named {
    if !path.is_dir() {
        return Named::Files(vec![path.to_owned()]);
    }
    match TraceFolder::open(path) {
        TraceFolder::One(of_session) => Named::Files(of_session),
        TraceFolder::Several(found) => {
            Named::Several { folder: path.to_owned(), list: trace_list::text(path, &found) }
        }
    }
}

impl Named {
    /// The files to read. A folder of several traces is an error of the command line, after their list.
    pub fn files(self) -> Result<Vec<PathBuf>, Failure> {
        match self {
            Named::Files(files) => Ok(files),
            Named::Several { folder, list } => {
                say_text(&list);
                let folder = folder.display();
                let failure =
                    Failure::new(format!("{folder} is a folder of traces, and none of them was chosen"));
                Err(failure
                    .hint(format!("name one of them, or {folder}/* to read all of them as one"))
                    .code(exit_code::USAGE))
            }
        }
    }
}

fn newest() -> Result<Vec<PathBuf>, Failure> {
    let base = Path::new(output_folder::DEFAULT_BASE);
    match trace_folder::newest(base) {
        Some(found) => {
            let path = printable::name(&found.path);
            say(format_args!("gputrace: reading {path}, the newest trace in {}", base.display()));
            Ok(found.files)
        }
        None => {
            let failure =
                Failure::new(format!("no trace was named, and there is none in {}", base.display()));
            Err(failure
                .hint("name a trace, or record one: gputrace run -- CMD")
                .code(exit_code::collector::NO_INPUT))
        }
    }
}

/// Each file once, whatever its names: read twice, everything in it would count twice.
fn each_once(mut paths: Vec<PathBuf>, repeated: impl Fn(&Path)) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    paths.retain(|path| {
        let is_new = fs::metadata(path).map_or(true, |file| seen.insert((file.dev(), file.ino())));
        if !is_new {
            repeated(path);
        }
        is_new
    });
    paths
}

/// Reads them all, and changes what was added up before it is analysed.
pub fn read_as(
    paths: Vec<PathBuf>,
    flames: &Flames,
    change: impl FnOnce(&mut Aggregates),
) -> Result<Read, Failure> {
    let (mut replay, exit_code) = replay(paths, Aggregates::default())?;
    change(&mut replay.sink);
    Ok(Read { analysis: Analysis::new(&replay.totals, &replay.sink, flames), exit_code })
}

/// The same as windows of that plan would have recorded them.
pub fn read_in_windows(paths: Vec<PathBuf>, plan: WindowPlan, flames: &Flames) -> Result<Read, Failure> {
    let (mut replay, exit_code) = replay(paths, Windowed::new(plan, Aggregates::default()))?;
    replay.totals.in_windows(&replay.sink.counts);
    Ok(Read { analysis: Analysis::new(&replay.totals, &replay.sink.sink, flames), exit_code })
}

/// The same of the part of them that `matches` selects: a second reading adds up what is selected.
pub fn read_part(
    paths: Vec<PathBuf>,
    matches: &ArgMatches,
    flames: &Flames,
    change: impl FnOnce(&mut Aggregates),
) -> Result<Read, Failure> {
    let selection = selection::of(matches)?;
    if selection.is_everything() {
        return read_as(paths, flames, change);
    }
    let (first, exit_code) = replay(paths.clone(), Aggregates::default())?;
    let trace = Trace::new(&first.totals, &first.sink);
    let mut second = replay_again(paths, Selected::new(selection, trace, Aggregates::default()))?;
    second.totals.narrow(second.sink.counts);
    let mut part = second.sink.sink;
    change(&mut part);
    let analysis = Analysis::new(&second.totals, &part, flames).of_part(selection::part(matches));
    if analysis.has_empty_flame() {
        say(format_args!("gputrace: warning: nothing in the trace fits --filter, --from and --to"));
    }
    Ok(Read { analysis, exit_code })
}

/// Reads them all into a sink. Damage, and a file that is no trace among others that are, is reported
/// on stderr and stops nothing; the exit code says so.
pub fn replay<S: Sink>(paths: Vec<PathBuf>, sink: S) -> Result<(Replay<S>, u8), Failure> {
    let paths = each_once(paths, |path| {
        say(format_args!("gputrace: warning: {} is given twice, and read once", printable::name(path)));
    });
    let replay = read_with_progress("gputrace: reading", &paths, sink)?;
    for (path, damage) in &replay.damages {
        say(format_args!("gputrace: warning: {} was read in part: {damage}", path.display()));
    }
    for (_, error) in &replay.skipped {
        say(format_args!("gputrace: warning: skipped: {error}"));
    }
    let exit_code = match replay.skipped.first() {
        Some((_, error)) => error.exit_code(),
        None if replay.damages.is_empty() => exit_code::SUCCESS,
        None => exit_code::PARTIAL,
    };
    Ok((replay, exit_code))
}

/// Reads them all once more; what is wrong with them was reported by [`replay`].
pub fn replay_again<S: Sink>(paths: Vec<PathBuf>, sink: S) -> Result<Replay<S>, Failure> {
    read_with_progress("gputrace: writing", &each_once(paths, |_| {}), sink)
}

fn read_with_progress<S: Sink>(what: &str, paths: &[PathBuf], sink: S) -> Result<Replay<S>, Failure> {
    let mut progress = Progress::new(what.into());
    Ok(read_traces(paths, sink, &mut |at| progress.at((at.bytes_read, at.bytes_total)))?)
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
