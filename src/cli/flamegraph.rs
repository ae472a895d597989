//! `gputrace flamegraph`: the flamegraph of traces, drawn or folded.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::cli::failure::Failure;
use crate::cli::output_folder::write_whole;
use crate::cli::{stdout, traces, variables};

pub fn command() -> Command {
    Command::new("flamegraph")
        .about("Make the flamegraph of traces, as SVG or as folded lines")
        .arg(
            Arg::new("folded")
                .long("folded")
                .action(ArgAction::SetTrue)
                .help("Folded lines, weights in microseconds, instead of SVG"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("The file to write [default: stdout]"),
        )
        .arg(traces::argument())
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let read = traces::read(matches)?;
    let contents =
        if matches.get_flag("folded") { read.analysis.folded().into_bytes() } else { read.analysis.svg()? };
    match matches.get_one::<PathBuf>("output") {
        Some(path) => write_whole(path, &contents)?,
        None => stdout::print(&contents)?,
    }
    Ok(read.exit_code)
}
