//! `gputrace report`: what is in traces, as text or JSON.

use std::io;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::cli::failure::Failure;
use crate::cli::settings::Flames;
use crate::cli::traces::Named;
use crate::cli::{exit_code, fail_on, run, stdout, traces, variables};

pub fn command() -> Command {
    Command::new("report")
        .about("Print what traces hold: kernels, transfers, counts, losses")
        .after_help(
            "Several traces are reported as one. One that cannot be read is skipped, and the exit code\n\
             says so. A folder with the folders of several sessions is listed. docs/report-json.md\n\
             describes the JSON.",
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("For programs to read"))
        .arg(fail_on::argument())
        .arg(run::verbose())
        .arg(traces::argument())
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let conditions = fail_on::conditions(matches)?;
    let is_json = matches.get_flag("json");
    let named = traces::named(matches)?;
    if let Named::Several { list, .. } = &named
        && !is_json
        && conditions.is_empty()
    {
        stdout::print(list.as_bytes())?;
        return Ok(exit_code::SUCCESS);
    }
    let read = traces::read_as(named.files()?, &Flames::default(), |_| {})?;
    let analysis = &read.analysis;
    let text = match is_json {
        true => analysis.json(None),
        false => analysis.summary_on(&io::stdout(), matches.get_flag("verbose")),
    };
    stdout::print(text.as_bytes())?;
    Ok(fail_on::check(&conditions, analysis.report()).unwrap_or(read.exit_code))
}
