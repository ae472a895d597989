//! `--filter`, `--from` and `--to`: which part of a trace a command is about.

use clap::{Arg, ArgAction, ArgMatches};
use gputrace_collector::export::{Interval, Selection};
use gputrace_collector::filter::Filter;
use gputrace_collector::report::PartReport;

use crate::cli::failure::Failure;
use crate::cli::{exit_code, seconds};

pub fn arguments() -> [Arg; 3] {
    [
        Arg::new("filter")
            .long("filter")
            .value_name("KEY=GLOB[,…]")
            .action(ArgAction::Append)
            .value_parser(Filter::parse)
            .help("Only events that have all of these: device=0,kernel=*gemm*; repeatable"),
        moment("from").help("Only events that end after that time"),
        moment("to").help("Only events that begin before that time"),
    ]
}

fn moment(name: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("TIME").value_parser(seconds::parse_moment)
}

/// What was asked for, in words.
pub fn part(matches: &ArgMatches) -> PartReport {
    let filters = matches.get_raw("filter").into_iter().flatten();
    let moment = |name| matches.get_one::<u64>(name).copied();
    PartReport {
        filters: filters.map(|filter| filter.to_string_lossy().into_owned()).collect(),
        from_ns: moment("from"),
        to_ns: moment("to"),
    }
}

/// What was asked for; everything without any of the options.
pub fn of(matches: &ArgMatches) -> Result<Selection, Failure> {
    let wrong = |why: &str| Failure::new(why).code(exit_code::USAGE);
    let filters = matches.get_many::<Filter>("filter").into_iter().flatten().cloned().collect();
    let moment = |name| matches.get_one::<u64>(name).copied();
    let interval = Interval { from_ns: moment("from"), to_ns: moment("to") };
    if interval.to_ns.is_some_and(|to_ns| to_ns < interval.from_ns.unwrap_or(0)) {
        return Err(wrong("--from is after --to").hint("both count from the trace's begin"));
    }
    Selection::new(filters, interval).ok_or_else(|| wrong("--filter has more than 64 conditions"))
}
