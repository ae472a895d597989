//! `gputrace diff`: what changed between two traces, or between several runs each.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use gputrace_collector::flame::{Flame, FlameDifference, FlameWeight, SharedRoots};
use gputrace_collector::report::diff::{DiffReport, PageFormat, RunSums, SideStacks, StackOfRun};
use gputrace_collector::report::{Report, TextOptions};

use crate::cli::analysis::page_width;
use crate::cli::fail_on::{self, Subject};
use crate::cli::failure::Failure;
use crate::cli::output_folder::write_whole;
use crate::cli::settings::Flames;
use crate::cli::talk::say;
use crate::cli::traces::Read;
use crate::cli::{exit_code, stdout, traces, variables};

pub fn command() -> Command {
    let side = |name: &'static str, other: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("TRACE")
            .num_args(1..)
            .requires(other)
            .conflicts_with("traces")
            .value_parser(value_parser!(PathBuf))
            .help(help)
    };
    Command::new("diff")
        .about("Compare two traces, or several runs before and after a change")
        .next_line_help(true)
        .after_help(
            "gputrace diff A B compares single runs. --before a1 a2 a3 --after b1 b2 b3 compares means, with\n\
             an interval for each difference; a folder that gputrace run wrote is one run. In --fail-on, a\n\
             value in % is compared with the change of the figure, any other one with the figure after.\n\
             docs/guide/comparing.md explains the page, docs/reference/diff.md the JSON.",
        )
        .arg(side("before", "after", "The runs before the change, one trace each"))
        .arg(side("after", "before", "The runs after it"))
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .value_parser(["text", "markdown", "json"])
                .hide_possible_values(true)
                .default_value("text")
                .help("text, markdown (a comment for a pull request) or json"),
        )
        .arg(
            Arg::new("flame")
                .long("flame")
                .value_name("FILE.svg")
                .value_parser(value_parser!(PathBuf))
                .help("Also draw both sides as one flamegraph, coloured by what changed"),
        )
        .arg(fail_on::argument(Subject::Sides))
        .arg(
            Arg::new("traces")
                .value_names(["BEFORE", "AFTER"])
                .num_args(2)
                .required_unless_present("before")
                .value_parser(value_parser!(PathBuf))
                .help("Trace files, or folders with a trace each"),
        )
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let conditions = fail_on::conditions(matches, Subject::Sides)?;
    let values = |name| matches.get_many::<PathBuf>(name).into_iter().flatten();
    let both: Vec<&PathBuf> = values("traces").collect();
    let (before, after): (Vec<&PathBuf>, Vec<&PathBuf>) = match both.as_slice() {
        [before, after] => (vec![*before], vec![*after]),
        _ => (values("before").collect(), values("after").collect()),
    };
    let (before, after) = (runs(&before)?, runs(&after)?);
    let drawing = matches.get_one::<PathBuf>("flame");
    if let Some(drawing) = drawing {
        traces::refuse_an_input(
            drawing,
            &before.iter().chain(&after).flatten().cloned().collect::<Vec<_>>(),
        )?;
    }
    let (before, after) = (Side::read("before", before)?, Side::read("after", after)?);
    let mut diff = DiffReport::new(&before.reports, &after.reports);
    let roots = SharedRoots::new(&before.flames, &after.flames);
    let [old, new] = [&before.flames, &after.flames].map(|flames| stacks(flames, &roots));
    let side = |runs, stacks| SideStacks { runs, stacks };
    diff.add_stacks(side(&before.reports, &old), side(&after.reports, &new));
    diff.notes.extend(before.left_out.into_iter().chain(after.left_out));
    diff.failed = fail_on::check_sides(&conditions, &before.reports, &after.reports);
    if let Some(drawing) = drawing {
        draw(drawing, &before.flames, &after.flames)?;
    }
    let text = match matches.get_one::<String>("format").map(String::as_str) {
        Some("json") => diff.to_json(),
        Some("markdown") => diff.to_page(PageFormat::Markdown),
        _ => {
            let width = page_width(&io::stdout()).unwrap_or(TextOptions::default().width);
            diff.to_page(PageFormat::Text { width })
        }
    };
    stdout::print(text.as_bytes())?;
    for failed in &diff.failed {
        say(format_args!("gputrace: --fail-on {failed}"));
    }
    match diff.failed.is_empty() {
        true => Ok(before.exit_code.or(after.exit_code).unwrap_or(exit_code::SUCCESS)),
        false => Ok(exit_code::CONDITION),
    }
}

/// The files of each run.
fn runs(paths: &[&PathBuf]) -> Result<Vec<Vec<PathBuf>>, Failure> {
    paths.iter().map(|path| traces::named_one(path).files()).collect()
}

/// What one side's runs came to.
#[derive(Default)]
struct Side {
    reports: Vec<Report>,
    flames: Vec<Flame>,
    /// The runs that could not be read, in words.
    left_out: Vec<String>,
    /// That of the first trace that could not be read whole.
    exit_code: Option<u8>,
}

impl Side {
    /// Reads the runs one by one. One that cannot be read is left out, and the exit code says so.
    fn read(name: &str, runs: Vec<Vec<PathBuf>>) -> Result<Side, Failure> {
        let (mut side, several) = (Side::default(), runs.len() > 1);
        for files in runs {
            let (why, exit_code) = match traces::read_as(files, &Flames::default(), |_| {}) {
                Ok(read) => match why_not_a_run(&read).filter(|_| several) {
                    Some(why) => (why.to_owned(), exit_code::PARTIAL),
                    None => {
                        let (report, flame) = read.analysis.into_parts();
                        side.reports.push(report);
                        side.flames.push(flame);
                        side.exit_code = side.exit_code.or((read.exit_code != 0).then_some(read.exit_code));
                        continue;
                    }
                },
                Err(failure) if several => (failure.message, failure.exit_code),
                Err(failure) => return Err(failure),
            };
            let text = format!("{name}: a run was left out: {why}");
            say(format_args!("gputrace: warning: {text}"));
            side.left_out.push(text);
            side.exit_code = side.exit_code.or(Some(exit_code));
        }
        match side.reports.is_empty() {
            true => Err(Failure::new(format!("no run {name} the change could be read"))
                .hint("see the warnings above")
                .code(side.exit_code.unwrap_or(exit_code::collector::NO_INPUT))),
            false => Ok(side),
        }
    }
}

/// The stacks of each run.
fn stacks(flames: &[Flame], roots: &SharedRoots) -> Vec<Vec<StackOfRun>> {
    let of_run = |flame: &Flame| {
        let is_host = flame.weight == FlameWeight::Host;
        let lines = flame.lines.iter().map(|line| {
            let frames = roots.frames(line).into_iter().map(|frame| frame.text).collect();
            let (ns, host_ns) = if is_host { (None, line.ns) } else { (Some(line.ns), 0) };
            (frames, RunSums { ns, calls: line.calls, host_ns })
        });
        lines.collect()
    };
    flames.iter().map(of_run).collect()
}

/// Why a trace would spoil a mean over several.
fn why_not_a_run(read: &Read) -> Option<&'static str> {
    match read.exit_code {
        exit_code::SUCCESS if read.analysis.has_events() => None,
        exit_code::SUCCESS => Some("nothing was recorded"),
        _ => Some("it was read in part"),
    }
}

fn draw(path: &Path, before: &[Flame], after: &[Flame]) -> Result<(), Failure> {
    match FlameDifference::new(before, after) {
        Ok(difference) => write_whole(path, difference.svg().as_bytes()),
        // The rest of the comparison is good without it.
        Err(why) => {
            say(format_args!("gputrace: warning: {} is not drawn: {why}", path.display()));
            Ok(())
        }
    }
}
