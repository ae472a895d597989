//! `gputrace report`: what is in traces, as a summary, as JSON, or table by table.

use std::io;

use clap::{Arg, ArgAction, ArgMatches, Command};
use gputrace_collector::report::named::{self, TableFormat};

use crate::cli::analysis::page_width;
use crate::cli::fail_on::Subject;
use crate::cli::failure::Failure;
use crate::cli::settings::Flames;
use crate::cli::traces::Named;
use crate::cli::{exit_code, fail_on, run, stdout, traces, variables};

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
        .arg(fail_on::argument(Subject::Report))
        .arg(run::verbose())
        .arg(traces::argument())
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
    if let Named::Several { list, .. } = &named
        && format == "text"
        && tables.is_empty()
        && conditions.is_empty()
    {
        stdout::print(list.as_bytes())?;
        return Ok(exit_code::SUCCESS);
    }
    let read = traces::read_as(named.files()?, &Flames::default(), |_| {})?;
    let analysis = &read.analysis;
    let text = match (tables.is_empty(), format) {
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
