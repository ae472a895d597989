//! `gputrace report`: what is in traces, as a summary, as JSON, or table by table.

use std::io;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use gputrace_collector::aggregate::WindowPlan;
use gputrace_collector::flame::{Flame, StackPage};
use gputrace_collector::report::PartReport;
use gputrace_collector::report::named::{self, TableFormat};

use crate::cli::analysis::page_width;
use crate::cli::fail_on::Subject;
use crate::cli::failure::Failure;
use crate::cli::given::Given;
use crate::cli::settings::Flames;
use crate::cli::traces::Named;
use crate::cli::{exit_code, fail_on, options, run, selection, stdout, traces, variables};

/// The width of tables in a file or a pipe: names of kernels are long, and nobody's lines are broken.
const PIPE_WIDTH: usize = 160;

pub fn command() -> Command {
    Command::new("report")
        .about("Print what traces hold: kernels, transfers, counts, losses")
        .next_line_help(true)
        .after_help(
            "Several traces are reported as one. One that cannot be read is skipped, and the exit code\n\
             says so. A folder with the folders of several sessions is listed. docs/report-json.md\n\
             describes the JSON, docs/reference/report-tables.md the single tables. --format csv and\n\
             markdown without --report print the lines, kernels, copies and calls.",
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("For programs to read"))
        .arg(
            Arg::new("report")
                .long("report")
                .value_name("NAME[,NAME]")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .help("Single tables, many with nsys's names; an unknown name lists them"),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .value_parser(["text", "csv", "json", "markdown"])
                .hide_possible_values(true)
                .conflicts_with("json")
                .help("Of the summary text or json, of tables any of them [default: text]"),
        )
        .args(tree_arguments())
        .args(options::GROUP_BY.argument().map(|group_by| group_by.requires("tree")))
        .args(selection::arguments())
        .arg(
            // For who checks the estimates of sessions by windows; scripts/check-windows does.
            Arg::new("windows")
                .long("windows")
                .value_name("ON/MEAN[,SEED[,stacks|counts]]")
                .hide(true)
                .value_parser(|text: &str| text.parse::<WindowPlan>())
                .conflicts_with_all(["filter", "from", "to"])
                .help("As windows would have recorded it: 10ms/100ms, and the number of a schedule"),
        )
        .arg(fail_on::argument(Subject::Report))
        .arg(run::verbose())
        .arg(traces::argument())
}

/// The stacks as text.
fn tree_arguments() -> [Arg; 3] {
    [
        Arg::new("tree")
            .long("tree")
            .action(ArgAction::SetTrue)
            .conflicts_with_all(["json", "report", "format"])
            .help("Time by stack as text: top down, and bottom up from what ran"),
        Arg::new("depth")
            .long("depth")
            .value_name("N")
            .requires("tree")
            .value_parser(value_parser!(u32).range(1..))
            .help("With --tree, at most N frames of a stack [default: all]"),
        Arg::new("min-share")
            .long("min-share")
            .value_name("PERCENT")
            .requires("tree")
            .value_parser(parse_percent)
            .default_value("0.5")
            .help("With --tree, frames of at least that share of all time [default: 0.5]")
            .hide_default_value(true),
    ]
}

fn parse_percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("a share is a number of percent from 0 to 100".to_owned()),
    }
}

fn tree(matches: &ArgMatches, flame: &Flame) -> String {
    flame.stack_page(&StackPage {
        width: page_width(&io::stdout()).unwrap_or(PIPE_WIDTH),
        depth: matches.get_one::<u32>("depth").map(|depth| *depth as usize),
        share_min: matches.get_one::<f64>("min-share").map_or(0.0, |percent| percent / 100.0),
    })
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let conditions = fail_on::conditions(matches, Subject::Report)?;
    let format = match matches.get_flag("json") {
        true => "json",
        false => matches.get_one::<String>("format").map_or("text", String::as_str),
    };
    let mut tables: Vec<String> = matches.get_many("report").into_iter().flatten().cloned().collect();
    if tables.is_empty() && matches!(format, "csv" | "markdown") {
        tables = named::DEFAULT.map(str::to_owned).to_vec();
    }
    named::check(&tables).map_err(|unknown| Failure::new(unknown.to_string()).code(exit_code::USAGE))?;
    let named = traces::named(matches)?;
    let is_tree = matches.get_flag("tree");
    if let Named::Several { list, .. } = &named
        && format == "text"
        && tables.is_empty()
        && conditions.is_empty()
        && !is_tree
        && selection::part(matches) == PartReport::default()
    {
        stdout::print(list.as_bytes())?;
        return Ok(exit_code::SUCCESS);
    }
    let group_by = Given(matches).option(&options::GROUP_BY).unwrap_or_default();
    let flames = Flames { group_by, ..Flames::default() };
    let read = match matches.get_one::<WindowPlan>("windows") {
        Some(plan) => traces::read_in_windows(named.files()?, *plan, &flames)?,
        None => traces::read_part(named.files()?, matches, &flames, |_| {})?,
    };
    let analysis = &read.analysis;
    let text = match (tables.is_empty(), format) {
        _ if is_tree => tree(matches, analysis.flame()),
        (true, "json") => analysis.json(None),
        (true, _) => analysis.summary_on(&io::stdout(), matches.get_flag("verbose")),
        (false, format) => {
            let format = match format {
                "csv" => TableFormat::Csv,
                "json" => TableFormat::Json,
                "markdown" => TableFormat::Markdown,
                _ => TableFormat::Text { width: page_width(&io::stdout()).unwrap_or(PIPE_WIDTH) },
            };
            analysis.tables(&tables, format)
        }
    };
    stdout::print(text.as_bytes())?;
    Ok(fail_on::check(&conditions, analysis.report()).unwrap_or(read.exit_code))
}
