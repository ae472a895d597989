//! `gputrace run`: traces a command from its start to its end.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::cli::failure::Failure;
use crate::cli::options::{Reader, SETTINGS};
use crate::cli::recording::{self, RunRequest};
use crate::cli::settings::{Limits, Settings};
use crate::cli::talk::say;
use crate::cli::top::live;
use crate::cli::{misplaced, no_subcommand, variables};
use crate::launch::traceable;

pub fn command() -> Command {
    Command::new("run")
        .about("Trace a command; its exit code is ours")
        .next_line_help(true)
        .after_help(
            "gputrace help OPTION describes an option in full.\n\
             Writes trace.gputrace, flame.folded, flame.svg and summary.txt; the summary also on stderr.\n\
             Files of these names, and output.log, that an earlier run left in the folder are replaced.\n\
             Each option but --simulate, --live and -v has a variable for auto-collect: gputrace help variables.\n\
             A signal that is sent to run is passed on to CMD; one that is sent both to run and to its process\n\
             group (timeout does that) may arrive more than once.",
        )
        .args(SETTINGS.iter().filter(|setting| setting.reader != Reader::Daemon).filter_map(|setting| setting.argument()))
        .arg(simulate())
        .arg(live())
        .arg(verbose())
        .arg(json())
        .arg(
            // Other tracers have it.
            Arg::new("pid").short('p').long("pid").value_name("PID").value_parser(value_parser!(OsString)).hide(true),
        )
        .arg(
            Arg::new("command")
                .value_name("CMD")
                .num_args(1..)
                .required_unless_present("pid")
                .trailing_var_arg(true)
                .value_parser(value_parser!(OsString))
                .help("The command and its arguments; without --, it begins at the first word that is no option"),
        )
}

fn simulate() -> Arg {
    Arg::new("simulate")
        .long("simulate")
        .action(ArgAction::SetTrue)
        .help("Put the simulated driver in front of the real one; for programs that use the driver API")
}

fn live() -> Arg {
    Arg::new("live")
        .long("live")
        .action(ArgAction::SetTrue)
        .help("Show the screen of gputrace top while CMD runs; its terminal output goes to output.log")
}

/// `-v` of everything that prints a summary.
pub fn verbose() -> Arg {
    Arg::new("verbose")
        .short('v')
        .long("verbose")
        .action(ArgAction::SetTrue)
        .help("Show what only experts look for: occupancy, how late device records came")
}

/// For tests: the report as the live session made it.
pub fn json() -> Arg {
    Arg::new("json").long("json").value_name("FILE").value_parser(value_parser!(PathBuf)).hide(true)
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    if let Some(pid) = matches.get_one::<OsString>("pid") {
        return Err(no_subcommand::attaching(Some(pid)));
    }
    let is_live = matches.get_flag("live");
    if let Some(refusal) = live::refusal().filter(|_| is_live) {
        return Err(refusal);
    }
    variables::warn_about_unknown();
    let command: Vec<OsString> = matches.get_many("command").into_iter().flatten().cloned().collect();
    let untraceable = command.first().and_then(|program| traceable::why_not(program));
    if let (Some(program), Some(why)) = (command.first(), &untraceable) {
        say(format_args!("gputrace: warning: {}", why.sentence(program)));
    }
    if let Some(warning) = misplaced::warning(&command) {
        say(format_args!("gputrace: warning: {warning}"));
    }
    recording::record(RunRequest {
        name: command.first().cloned().unwrap_or_default(),
        command,
        settings: Settings::new(matches, Limits::new(matches)?),
        simulate: matches.get_flag("simulate"),
        is_live,
        verbose: matches.get_flag("verbose"),
        untraceable: untraceable.map(|why| why.text),
        json: matches.get_one::<PathBuf>("json").cloned(),
    })
}
