//! `--rotate-size`, `--rotate-every`, `--keep`: the outputs of closed trace files, and which of them stay.
//!
//! A closed file is named `trace.000001.gputrace` and so on; its flamegraph and summary have the same number.
//! The open file is `trace.gputrace`, so that a folder's files are in order of time by name.

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::{Arg, ArgMatches};
use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::report::grouped_count;
use gputrace_collector::session::{ClosedFile, Recording, RotationConfig, numbered};
use gputrace_collector::stream::replay::{Replay, read_traces};

use crate::cli::analysis::Analysis;
use crate::cli::failure::{Failure, reason};
use crate::cli::given::Given;
use crate::cli::options::{self, Setting};
use crate::cli::output_folder::OutputFolder;
use crate::cli::settings::{Flames, Limits};
use crate::cli::talk::say;
use crate::cli::{exit_code, max_size, output_folder, outputs, printable, seconds};

/// When a trace is cut, and how much of it stays.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    size: Option<u64>,
    every: Option<Duration>,
    /// Closed files that stay; `None`: all.
    keep: Option<u32>,
}

const SETTINGS: [&Setting; 3] = [&options::ROTATE_SIZE, &options::ROTATE_EVERY, &options::KEEP];

/// The options.
pub fn arguments() -> impl Iterator<Item = Arg> {
    SETTINGS.into_iter().filter_map(Setting::argument)
}

impl Rotation {
    /// A program that is traced by itself has its trace in one file; the variables are not for its collector.
    pub fn refuse_without_listen(matches: &ArgMatches) -> Result<(), Failure> {
        let given = SETTINGS.into_iter().filter_map(|setting| setting.option);
        match given.into_iter().find(|option| matches.contains_id(option)) {
            Some(option) => {
                let failure = Failure::new(format!("--{option} works with --listen only"));
                Err(failure.hint("the trace of one program is one file").code(exit_code::USAGE))
            }
            None => Ok(()),
        }
    }

    /// What the options say, else the variables; `None` where the trace is not cut.
    pub fn new(matches: &ArgMatches, limits: &Limits) -> Result<Option<Rotation>, Failure> {
        let given = Given(matches);
        let rotation = Rotation {
            size: given.or_fail(&options::ROTATE_SIZE, max_size::parse)?,
            every: given.or_fail(&options::ROTATE_EVERY, seconds::parse_with_unit)?,
            keep: given.or_fail(&options::KEEP, max_size::parse_files)?,
        };
        let wrong = |message: &str, hint: &str| {
            Err(Failure::new(message.to_owned()).hint(hint.to_owned()).code(exit_code::USAGE))
        };
        if rotation.size.is_none() && rotation.every.is_none() {
            return match rotation.keep {
                Some(_) => wrong(
                    "--keep without rotation deletes nothing",
                    "give --rotate-size or --rotate-every beside it",
                ),
                None => Ok(None),
            };
        }
        if limits.flight.is_some() {
            return wrong(
                "--flight-recorder and rotation do not go together",
                "a flight recorder keeps the last seconds in memory and has no file to rotate",
            );
        }
        if limits.max_bytes.is_some() {
            return wrong(
                "--max-size and rotation do not go together",
                "--rotate-size with --keep bounds what is on disk, and keeps the newest part",
            );
        }
        Ok(Some(rotation))
    }

    /// What the recorder needs to know. Outputs go to `folder`.
    pub fn config(self, folder: &OutputFolder, flames: &Flames) -> RotationConfig {
        let (folder, flames) = (folder.path().to_owned(), flames.clone());
        let handle_closed = Box::new(move |file: &ClosedFile| {
            let deleted = self.delete_old(&folder, file.number);
            write_outputs(file, &folder, &flames);
            deleted
        });
        RotationConfig { size: self.size, every: self.every, handle_closed }
    }

    /// Deletes closed files, with their outputs, but for the newest. `newest` was closed last.
    fn delete_old(&self, folder: &Path, newest: u32) -> u64 {
        let Some(last) = self.keep.and_then(|keep| newest.checked_sub(keep)) else { return 0 };
        let mut deleted = 0;
        // Each was deleted after the next one but `keep` was closed, unless that failed.
        for number in (1..=last).rev() {
            let of = |name| numbered(&folder.join(name), number);
            let trace = of(output_folder::TRACE);
            match fs::remove_file(&trace) {
                Ok(()) => {
                    deleted += 1;
                    say(format_args!("gputrace: deleted {}, as --keep asks", printable::name(&trace)));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    // Those before it went earlier.
                    break;
                }
                Err(error) => say(format_args!(
                    "gputrace: warning: cannot delete {}: {}",
                    printable::name(&trace),
                    reason(&error)
                )),
            }
            output_folder::BESIDE_TRACE.into_iter().for_each(|name| _ = fs::remove_file(of(name)));
        }
        deleted
    }

    /// Makes the last file what the outputs at the end are of, and returns what is to be said of the others.
    pub fn take_last_file(self, recording: &mut Recording<Aggregates>) -> String {
        let (closed, deleted) = recording.rotated;
        let mut text = String::new();
        match read(&recording.trace_path) {
            Ok(replay) => {
                let not_initialised = std::mem::take(&mut recording.totals.not_initialised);
                (recording.totals, recording.sink) = (replay.totals, replay.sink);
                recording.totals.not_initialised = not_initialised;
            }
            Err(failure) => text += &format!("{failure}\n"),
        }
        if closed > 0 {
            let folder = recording.trace_path.parent().unwrap_or(Path::new("."));
            text += &format!(
                "gputrace: the trace has {} files, of which --keep deleted {}; the figures above are of the last; \
                 gputrace report {} reads all\n",
                grouped_count(closed + 1),
                grouped_count(deleted),
                printable::name(folder)
            );
        }
        text
    }
}

fn read(trace: &Path) -> Result<Replay<Aggregates>, Failure> {
    Ok(read_traces(&[trace], Aggregates::default(), &mut |_| {})?)
}

fn write_outputs(file: &ClosedFile, folder: &Path, flames: &Flames) {
    let trace = printable::name(&file.path);
    let failures = match read(&file.path) {
        Ok(replay) => {
            let analysis = Analysis::new(&replay.totals, &replay.sink, flames);
            say(format_args!("gputrace: closed {trace} ({} events)", analysis.events()));
            outputs::write_numbered(&analysis, folder, file.number)
        }
        Err(failure) => vec![failure],
    };
    failures.iter().for_each(|failure| say(format_args!("{failure}")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::private_folder::SessionFolder;

    #[test]
    fn old_files_and_their_outputs_are_deleted_and_nothing_else() {
        let folder = SessionFolder::create().unwrap();
        let path = |name: &str| folder.path().join(name);
        for number in 1..=5 {
            for name in output_folder::FILES {
                fs::write(numbered(&path(name), number), "x").unwrap();
            }
        }
        let others = ["trace.gputrace", "flame.svg", "summary.txt", "trace.1.gputrace", "notes"];
        others.iter().for_each(|name| fs::write(path(name), "x").unwrap());
        let rotation = Rotation { size: Some(1), every: None, keep: Some(2) };
        assert_eq!(rotation.delete_old(folder.path(), 4), 2);
        assert_eq!(rotation.delete_old(folder.path(), 5), 1);
        assert_eq!(rotation.delete_old(folder.path(), 5), 0);
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 2 * output_folder::FILES.len() + others.len());
        assert!(path("trace.000004.gputrace").exists() && path("flame.000005.svg").exists());
        let unlimited = Rotation { keep: None, ..rotation };
        assert_eq!(unlimited.delete_old(folder.path(), 5), 0);
    }
}
