//! `gputrace flamegraph`: the flamegraph of traces, drawn or folded.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::cli::failure::Failure;
use crate::cli::output_folder::{DRAWING, IDLE_DRAWING, write_whole, write_without_replacing};
use crate::cli::settings::Flames;
use crate::cli::talk::say;
use crate::cli::{exit_code, options, output_argument, printable, selection, stdout, traces, variables};

/// The ending of a file of folded lines.
const FOLDED: &str = "folded";

pub fn command() -> Command {
    Command::new("flamegraph")
        .about("Make the flamegraph of traces, as SVG or as folded lines")
        .next_line_help(true)
        .after_help(
            "On a terminal, without -o and --folded, the drawing is written to flame.svg in the current\n\
             folder (flame-idle.svg with --weight idle), or to flame-2.svg and so on: a file that is there\n\
             is not replaced. To a pipe or a file, stdout gets the drawing. docs/guide/exports.md has the\n\
             grammar of --filter and of a TIME. gputrace help OPTION describes an option in full.",
        )
        .arg(
            Arg::new("folded")
                .long("folded")
                .action(ArgAction::SetTrue)
                .help("Folded lines, weights in microseconds, instead of SVG"),
        )
        .arg(
            output_argument::file().help(
                "The file; folded lines if NAME.folded [default: flame.svg on a terminal, else stdout]",
            ),
        )
        .arg(
            Arg::new("weight")
                .long("weight")
                .value_name("gpu|idle")
                .value_parser(["gpu", "idle"])
                .hide_possible_values(true)
                .default_value("gpu")
                .help("GPU time by what used it, or the time in which no GPU worked by why"),
        )
        .args(options::NVTX_FRAMES.argument())
        .args(options::GROUP_BY.argument())
        .arg(
            Arg::new("graphs")
                .long("graphs")
                .value_name("capture|replay")
                .value_parser(["capture", "replay"])
                .hide_possible_values(true)
                .default_value("capture")
                .help("Put kernels of CUDA graphs under what captured or launched the graph"),
        )
        .args(selection::arguments())
        .arg(traces::argument())
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let output = matches.get_one::<PathBuf>("output");
    let inputs = traces::named(matches)?.files()?;
    if let Some(output) = output {
        traces::refuse_an_input(output, &inputs)?;
    }
    let of_idle = matches.get_one::<String>("weight").is_some_and(|value| value == "idle");
    if of_idle && !selection::of(matches)?.is_everything() {
        let why = "--weight idle is of the whole trace, and cannot be with --filter, --from or --to";
        return Err(Failure::new(why).code(exit_code::USAGE));
    }
    let by_replay = matches.get_one::<String>("graphs").is_some_and(|value| value == "replay");
    let flames = Flames { idle: of_idle, ..Flames::new(matches) };
    let read = traces::read_part(inputs, matches, &flames, |aggregates| {
        if by_replay {
            aggregates.device_stacks.by_replay();
            if let Some(estimates) = &mut aggregates.estimates {
                estimates.by_replay();
            }
        }
    })?;
    let ends_in_folded = output.and_then(|path| path.extension()).is_some_and(|ending| ending == FOLDED);
    let is_folded = matches.get_flag("folded") || ends_in_folded;
    let flame = match of_idle {
        true => read.analysis.idle().ok_or_else(no_idle_time)?,
        false => read.analysis.flame(),
    };
    let contents = if is_folded { flame.folded() } else { flame.svg() }.into_bytes();
    match output {
        Some(path) => write_whole(path, &contents)?,
        None if !is_folded && io::stdout().is_terminal() => {
            let name = if of_idle { IDLE_DRAWING } else { DRAWING };
            let written = write_without_replacing(Path::new(name), &contents)?;
            let written = printable::name(written);
            say(format_args!("gputrace: wrote {written}; open it in a browser"));
        }
        None => stdout::print(&contents)?,
    }
    Ok(read.exit_code)
}

fn no_idle_time() -> Failure {
    Failure::new(
        "it is not known when a GPU was idle: the trace has no device times, or only of a part of the time",
    )
    .hint("record it with --device-times full and without a pause")
    .code(exit_code::FAILED)
}
