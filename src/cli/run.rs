//! `gputrace run`: traces a command from its start to its end.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use gputrace_collector::metrics;

use crate::cli::failure::Failure;
use crate::cli::options::{self, Reader, SETTINGS, Setting};
use crate::cli::recording::{self, Request};
use crate::cli::talk::say;
use crate::cli::{
    flight_recorder, group_by, max_size, misplaced, no_subcommand, otlp, range_frames, variables,
};
use crate::launch::traceable;

pub fn command() -> Command {
    Command::new("run")
        .about("Trace a command; its exit code is ours")
        .after_help(
            "Writes trace.gputrace, flame.folded, flame.svg and summary.txt; the summary also on stderr.\n\
             Files of these four names that an earlier run left in the folder are replaced.\n\
             Each option but --simulate and --verbose has a variable for bare use: gputrace help variables.\n\
             A signal that is sent to run is passed on to CMD; one that is sent both to run and to its process\n\
             group (timeout does that) may arrive more than once.",
        )
        .args(SETTINGS.iter().filter_map(argument))
        .arg(simulate())
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
                .help("The command and its arguments, after --; without --, it begins with the first word that is no option"),
        )
}

/// The option of a setting, if it has one.
pub fn argument(setting: &'static Setting) -> Option<Arg> {
    let option = setting.option?;
    let mut argument = Arg::new(option)
        .long(option)
        .value_name(setting.value)
        .help(format!("{} [default: {}]", setting.help, setting.default));
    if setting.variable == options::OUTPUT {
        argument = argument.short('o');
    }
    if setting.variable == options::ALL_SPANS {
        // All of them, and so many at most: one of the two was not meant.
        argument = argument.conflicts_with("spans-per-second");
    }
    Some(if setting.value == options::SECONDS {
        argument.value_parser(flight_recorder::parse)
    } else if setting.value == options::SIZE {
        argument.value_parser(max_size::parse)
    } else if setting.value == options::PARTS {
        argument.value_parser(group_by::parse)
    } else if setting.value == options::DESTINATION {
        argument.value_parser(NonEmptyStringValueParser::new())
    } else if setting.variable == options::SPANS_PER_SECOND {
        argument.value_parser(value_parser!(u32).range(1..=1_000_000)).conflicts_with("all")
    } else if setting.variable == options::METRICS_KERNELS {
        argument.value_parser(value_parser!(u32).range(0..=metrics::KERNELS_MAX as i64))
    } else if setting.value == options::NUMBER {
        argument.value_parser(value_parser!(u32))
    } else if setting.values.is_empty() {
        // Folders and files: an empty name is refused.
        argument.value_parser(value_parser!(PathBuf))
    } else {
        let argument =
            argument.value_parser(PossibleValuesParser::new(setting.values)).hide_possible_values(true);
        if setting.values == ["on", "off"] {
            // A flag, which can be taken back where a variable sets it.
            argument.num_args(0..=1).require_equals(true).default_missing_value("on")
        } else {
            argument
        }
    })
}

fn simulate() -> Arg {
    Arg::new("simulate")
        .long("simulate")
        .action(ArgAction::SetTrue)
        .help("Put the simulated driver in front of the real one; for programs that use the driver API")
}

/// `-v` of everything that prints a summary.
pub fn verbose() -> Arg {
    Arg::new("verbose")
        .short('v')
        .long("verbose")
        .action(ArgAction::SetTrue)
        .help("Show in the summary what only experts look for: occupancy, how late device records came")
}

/// For tests: the report as the live session made it.
pub fn json() -> Arg {
    Arg::new("json").long("json").value_name("FILE").value_parser(value_parser!(PathBuf)).hide(true)
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    if let Some(pid) = matches.get_one::<OsString>("pid") {
        return Err(no_subcommand::attaching(Some(pid)));
    }
    variables::warn_about_unknown();
    range_frames::choose(matches);
    group_by::choose(matches);
    let command: Vec<OsString> = matches.get_many("command").into_iter().flatten().cloned().collect();
    let untraceable = command.first().and_then(|program| traceable::why_not(program));
    if let (Some(program), Some(why)) = (command.first(), &untraceable) {
        say(format_args!("gputrace: warning: {}", why.sentence(program)));
    }
    if let Some(warning) = misplaced::warning(&command) {
        say(format_args!("gputrace: warning: {warning}"));
    }
    let output = matches.get_one::<PathBuf>("output").cloned();
    let flight = flight_recorder::asked(matches)?;
    recording::record(Request {
        name: command.first().cloned().unwrap_or_default(),
        command,
        output: output.or_else(|| variables::value(options::OUTPUT).map(PathBuf::from)),
        environment: environment(matches),
        hands_on: variables::hands_on(matches.get_one::<String>("traceparent").map(String::as_str)),
        flight,
        max_bytes: max_size::asked(matches, flight.is_some())?,
        otlp: otlp::Request::new(Some(matches)),
        simulate: matches.get_flag("simulate"),
        verbose: matches.get_flag("verbose"),
        untraceable: untraceable.map(|why| why.text),
        json: matches.get_one::<PathBuf>("json").cloned(),
    })
}

/// The variables by which the library learns of the options.
fn environment(matches: &ArgMatches) -> Vec<(&'static str, OsString)> {
    let mut environment = Vec::new();
    for setting in SETTINGS.iter().filter(|setting| setting.reader == Reader::Library) {
        let Some(option) = setting.option else { continue };
        let value = if setting.values.is_empty() {
            matches.get_one::<PathBuf>(option).cloned().map(OsString::from)
        } else {
            matches.get_one::<String>(option).map(OsString::from)
        };
        environment.extend(value.map(|value| (setting.variable, value)));
    }
    environment
}
