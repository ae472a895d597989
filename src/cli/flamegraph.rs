//! `gputrace flamegraph`: the flamegraph of traces, drawn or folded.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::cli::failure::Failure;
use crate::cli::output_folder::write_whole;
use crate::cli::{group_by, options, output_argument, range_frames, run, stdout, traces, variables};

pub fn command() -> Command {
    Command::new("flamegraph")
        .about("Make the flamegraph of traces, as SVG or as folded lines")
        .arg(
            Arg::new("folded")
                .long("folded")
                .action(ArgAction::SetTrue)
                .help("Folded lines, weights in microseconds, instead of SVG"),
        )
        .arg(output_argument::file())
        .args(options::by_variable(options::NVTX_FRAMES).and_then(run::argument))
        .args(options::by_variable(options::GROUP_BY).and_then(run::argument))
        .arg(
            Arg::new("graphs")
                .long("graphs")
                .value_name("capture|replay")
                .value_parser(["capture", "replay"])
                .default_value("capture")
                .help(
                    "What the kernels of CUDA graphs stand under: what captured or built them, or what launched the \
                     graph",
                ),
        )
        .arg(traces::argument())
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    range_frames::choose(matches);
    group_by::choose(matches);
    if let Some(output) = matches.get_one::<PathBuf>("output") {
        traces::refuse_an_input(output, &traces::paths(matches))?;
    }
    let by_replay = matches.get_one::<String>("graphs").is_some_and(|value| value == "replay");
    let read = traces::read_as(matches, |aggregates| {
        if by_replay {
            aggregates.device_stacks.by_replay();
        }
    })?;
    let contents =
        if matches.get_flag("folded") { read.analysis.folded().into_bytes() } else { read.analysis.svg()? };
    match matches.get_one::<PathBuf>("output") {
        Some(path) => write_whole(path, &contents)?,
        None => stdout::print(&contents)?,
    }
    Ok(read.exit_code)
}
