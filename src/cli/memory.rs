//! `gputrace memory`: who held the GPU's memory, by line.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::flame::{Flame, MemoryWeight};
use gputrace_collector::label::Labels;
use gputrace_collector::memory::{LeakedSites, MemoryOf, Moment};
use gputrace_collector::report::{
    MemoryDiff, MemoryPage, MemoryReport, MemoryRows, Report, TextOptions, leaked_sites,
};

use crate::cli::failure::Failure;
use crate::cli::output_folder::{write_whole, write_without_replacing};
use crate::cli::talk::say;
use crate::cli::{analysis, output_argument, printable, seconds, stdout, traces, variables};

/// What is written on a terminal, in the current folder.
const DEFAULT_DRAWING: &str = "memory.svg";
/// The ending of a file of folded lines.
const FOLDED: &str = "folded";

/// The value of `--at`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Peak,
    End,
    Time(u64),
}

pub fn command() -> Command {
    let moment = |name: &'static str| {
        let moment = Arg::new(name).long(name).value_name("TIME").value_parser(seconds::parse_moment);
        moment.conflicts_with("diff")
    };
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    Command::new("memory")
        .about("Show who held the GPU's memory, by line: at the peak, at the end, or never freed")
        .next_line_help(true)
        .after_help(
            "Memory is what the program asked the driver for. Of a caching allocator such as PyTorch's a line is\n\
             the one that made it ask for more; what PyTorch does with it is recorded with run --memory blocks\n\
             and shown with --blocks. Contexts, modules and other programs take memory too, which is in no\n\
             allocation.",
        )
        .arg(
            Arg::new("at")
                .long("at")
                .value_name("peak|end|TIME")
                .value_parser(parse_at)
                .default_value("peak")
                .help("When; a TIME is since tracing of the process began (2.5s, 300ms)"),
        )
        .arg(flag("blocks").help("What PyTorch's caching allocator gave out, that is tensors; needs run --memory blocks"))
        .arg(flag("leaks").conflicts_with("at").help("What was never freed: the lines that repeat first"))
        .arg(
            flag("temporary")
                .conflicts_with_all(["at", "leaks"])
                .help("What was freed before the process made two more allocations"),
        )
        .arg(flag("table").help("As a table by line [default]"))
        .arg(flag("tree").conflicts_with("table").help("As a tree of the stacks, outermost first"))
        .arg(flag("flame").conflicts_with_all(["table", "tree"]).help("As a flamegraph, weighted in bytes"))
        .arg(flag("json").conflicts_with_all(["table", "tree", "flame"]).help("For programs to read"))
        .arg(flag("churn").conflicts_with_all(["at", "leaks", "temporary"]).help(
            "All that was allocated, freed or not",
        ))
        .arg(moment("from").help("The peak after that time, and what was allocated from then on and not freed"))
        .arg(moment("to").help("As it was at that time; both count from the trace's begin"))
        .arg(
            Arg::new("diff")
                .long("diff")
                .value_name("BEFORE")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with_all(["at", "leaks", "temporary", "churn", "table", "tree", "flame", "blocks"])
                .help("What changed since that trace, by line: at the peak, leaked, freed at once"),
        )
        .arg(output_argument::file().help(
            "The file; folded lines if NAME.folded [default: stdout; memory.svg for a drawing]",
        ))
        .arg(traces::argument())
}

fn parse_at(text: &str) -> Result<At, String> {
    match text {
        "peak" => Ok(At::Peak),
        "end" => Ok(At::End),
        time => seconds::parse_moment(time)
            .map(At::Time)
            .map_err(|error| format!("{error}; or it is peak or end")),
    }
}

/// Compares with the trace before.
fn diff(
    matches: &ArgMatches,
    before: &Path,
    inputs: Vec<PathBuf>,
    output: Option<&PathBuf>,
) -> Result<u8, Failure> {
    let old = traces::named_one(before).files()?;
    if let Some(output) = output {
        traces::refuse_an_input(output, &old)?;
    }
    let (old, of_old) = traces::replay(old, Aggregates::default())?;
    let (new, of_new) = traces::replay(inputs, Aggregates::default())?;
    let [old, new] = [old, new].map(|replay| Report::new(&replay.totals, &replay.sink).memory);
    let diff = MemoryDiff::new(&old, &new);
    let text = match matches.get_flag("json") {
        true => diff.to_json(),
        false => diff.to_text(width()),
    };
    match output {
        Some(path) => write_whole(path, text.as_bytes())?,
        None => stdout::print(text.as_bytes())?,
    }
    Ok(of_old.max(of_new))
}

fn width() -> usize {
    analysis::page_width(&io::stdout()).unwrap_or(TextOptions::default().width)
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let at = matches.get_one::<At>("at").copied().unwrap_or(At::Peak);
    let [leaks, temporary, churn] = ["leaks", "temporary", "churn"].map(|name| matches.get_flag(name));
    let (moment, asked) = match at {
        _ if leaks => (Moment::End, None),
        At::Peak => (Moment::Peak, None),
        At::End => (Moment::End, None),
        At::Time(after_ns) => (Moment::Asked, Some(after_ns)),
    };
    let output = matches.get_one::<PathBuf>("output");
    let inputs = traces::named(matches)?.files()?;
    if let Some(output) = output {
        traces::refuse_an_input(output, &inputs)?;
    }
    if let Some(before) = matches.get_one::<PathBuf>("diff") {
        return diff(matches, before, inputs, output);
    }
    let mut aggregates = Aggregates::default();
    if let Some(after_ns) = asked {
        aggregates.memory.ask_at(after_ns);
    }
    let [from_ns, to_ns] = ["from", "to"].map(|name| matches.get_one::<u64>(name).copied());
    if from_ns.is_some() || to_ns.is_some() {
        aggregates.memory.ask_part(from_ns.unwrap_or(0), to_ns.unwrap_or(u64::MAX));
    }
    let (replay, exit_code) = traces::replay(inputs, aggregates)?;
    let of = if matches.get_flag("blocks") { MemoryOf::Blocks } else { MemoryOf::Driver };
    if of == MemoryOf::Blocks && replay.sink.memory.of(of).next().is_none() {
        return Err(Failure::new("no blocks are in the trace").hint("they are with run --memory blocks"));
    }
    let mut labels = Labels::new(&replay.totals, &replay.sink);
    let is_folded = output.and_then(|path| path.extension()).is_some_and(|ending| ending == FOLDED);
    let is_drawn = matches.get_flag("flame");
    let text = if is_drawn || is_folded || matches.get_flag("tree") {
        let weight = match moment {
            _ if churn => MemoryWeight::Allocated,
            _ if temporary => MemoryWeight::Temporary,
            _ if leaks => MemoryWeight::Leaked,
            moment => MemoryWeight::Live(moment),
        };
        let flame = {
            let leaked = match leaks {
                true => leaked_sites(of, &replay.totals, &replay.sink, &mut labels),
                false => LeakedSites::new(),
            };
            Flame::of_memory(of, &replay.totals, &replay.sink, &mut labels, weight, &leaked)
        };
        match (is_folded, is_drawn) {
            (true, _) => flame.folded(),
            (false, true) => flame.svg(),
            (false, false) => flame.tree(),
        }
    } else {
        let report = MemoryReport::of(of, &replay.totals, &replay.sink, &mut labels);
        let rows = match moment {
            _ if leaks => MemoryRows::Leaks,
            _ if temporary => MemoryRows::Temporary,
            _ if churn => MemoryRows::Allocated,
            moment => MemoryRows::Held(moment),
        };
        match matches.get_flag("json") {
            true => report.to_json(rows),
            false => report.to_text(&MemoryPage { rows, of, width: width() }),
        }
    };
    match output {
        Some(path) => write_whole(path, text.as_bytes())?,
        None if is_drawn && !is_folded && io::stdout().is_terminal() => {
            let written = write_without_replacing(Path::new(DEFAULT_DRAWING), text.as_bytes())?;
            let written = printable::name(written);
            say(format_args!("gputrace: wrote {written}; open it in a browser"));
        }
        None => stdout::print(text.as_bytes())?,
    }
    Ok(exit_code)
}
