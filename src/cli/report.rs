//! `gputrace report`: what is in traces, as text or JSON.

use std::io;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::cli::failure::Failure;
use crate::cli::{stdout, traces, variables};

pub fn command() -> Command {
    Command::new("report")
        .about("Print what traces hold: kernels, transfers, counts, losses")
        .after_help("Several traces are reported as one. The JSON is described in docs/report-json.md.")
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("For programs to read"))
        .arg(traces::argument())
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let read = traces::read(matches)?;
    let analysis = &read.analysis;
    let text = match matches.get_flag("json") {
        true => analysis.json(),
        false => analysis.summary_on(&io::stdout()),
    };
    stdout::print(text.as_bytes())?;
    Ok(read.exit_code)
}
