//! `gputrace export`: traces in the formats of other tools.

mod otlp;
mod output;

use std::io;
use std::path::{Path, PathBuf};

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{Arg, ArgMatches, Command};
use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::export::{Choices, FORMATS, Feed, FormatEntry, Selection, Trace};
use gputrace_collector::otlp::{Asked, Signal};

use crate::cli::failure::Failure;
use crate::cli::given::Given;
use crate::cli::settings::Flames;
use crate::cli::talk::say;
use crate::cli::{exit_code, otlp as otlp_options, output_argument, selection, traces, variables};

pub fn command() -> Command {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    Command::new("export")
        .about("Write traces in the formats of other tools, or send them over OTLP")
        .next_line_help(true)
        .after_help(
            "docs/guide/exports.md has a paragraph about each format, and the grammar of --filter: KEY is\n\
             process, thread, stream, device, kernel or range, and * and ? in GLOB stand for any letters and\n\
             for one. All of one --filter must hold; of several --filter, one. A TIME counts from the trace's\n\
             begin, in seconds, or with ns, us, ms, s, m, h or d.\n\
             \n\
             otlp-json is one request a line, as the OpenTelemetry Collector reads and writes it. Names and\n\
             attributes are described in docs/SPANS.md and docs/METRICS.md. OTEL_SERVICE_NAME and\n\
             OTEL_RESOURCE_ATTRIBUTES win over those that the program had.\n\
             OTEL_METRIC_EXPORT_INTERVAL is the interval of metrics, and\n\
             OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE asks for totals or for differences.\n\
             --otlp sends what run --otlp would have sent, with the same ids. It gives up if nothing is\n\
             accepted for three times OTEL_EXPORTER_OTLP_TIMEOUT (30 s).\n\
             gputrace help OPTION describes an option in full.",
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .value_parser(PossibleValuesParser::new(FORMATS.iter().map(|format| format.name)))
                .hide_possible_values(true)
                .conflicts_with("otlp")
                .help(names.join(", ")),
        )
        .arg(
            Arg::new("otlp")
                .long("otlp")
                .value_name("URL|env")
                .value_parser(NonEmptyStringValueParser::new())
                .conflicts_with_all(["output", "filter", "from", "to"])
                .help("Send to that URL, or with env to where OTEL_EXPORTER_OTLP_ENDPOINT says"),
        )
        .arg(
            Arg::new("signal")
                .long("signal")
                .value_name("traces|metrics")
                .value_parser(["traces", "metrics"])
                .hide_possible_values(true)
                .default_value("traces")
                .help("Spans, or metrics: a file has one of them"),
        )
        .arg(output_argument::file().help("The file to write, compressed if NAME.gz, or - [default: stdout]"))
        .args(selection::arguments())
        .args(otlp_options::arguments())
        .arg(traces::argument())
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    if let Some(asked) = matches.get_one::<String>("otlp") {
        return otlp::send(matches, &Asked::parse(asked));
    }
    let Some(name) = matches.get_one::<String>("format") else { return Err(no_format()) };
    let format = FORMATS.iter().find(|format| format.name == name).ok_or_else(no_format)?;
    let selection = selection::of(matches)?;
    let is_metrics = otlp::signal(matches) == Signal::Metrics;
    if is_metrics && (format.name != OTLP_JSON || !selection.is_everything()) {
        let failure =
            Failure::new(format!("--signal metrics is for --format {OTLP_JSON}, and for whole traces"));
        return Err(failure.hint("leave out --signal, or --filter, --from and --to").code(exit_code::USAGE));
    }
    let inputs = traces::named(matches)?.files()?;
    let path = matches.get_one::<PathBuf>("output").map(PathBuf::as_path).filter(|path| *path != "-");
    if let Some(path) = path {
        traces::refuse_an_input(path, &inputs)?;
    }
    if is_metrics {
        return otlp::write_metrics(matches, format, inputs, path);
    }
    export(matches, format, selection, inputs, path)
}

/// The format whose events are spans.
const OTLP_JSON: &str = "otlp-json";

/// The formats that can be asked for, as an error of the command line.
fn no_format() -> Failure {
    say(format_args!("gputrace export writes these formats:\n"));
    for format in FORMATS {
        say(format_args!("  --format {:<12}  {}", format.name, format.about));
    }
    say(format_args!(
        "  --otlp URL             send spans or metrics to an OpenTelemetry back end at that URL\n"
    ));
    Failure::new("no format was named")
        .hint("for example: gputrace export --format otlp-json -o spans.jsonl TRACE")
        .code(exit_code::USAGE)
}

/// Reads the traces twice: for their names, and for the output.
fn export(
    matches: &ArgMatches,
    format: &FormatEntry,
    selection: Selection,
    inputs: Vec<PathBuf>,
    path: Option<&Path>,
) -> Result<u8, Failure> {
    let is_filtered = !selection.is_everything();
    let (count, left_out, exit_code) = output::write_to(path, format, |destination| {
        let opened = (format.open)(destination).map_err(|error| output::cut_short(path, &error))?;
        let (first, exit_code) = traces::replay(inputs.clone(), Aggregates::default())?;
        let mut trace = Trace::new(&first.totals, &first.sink);
        trace.choices = choices(matches);
        let fed = traces::replay_again(inputs, Feed::of(selection, trace, opened))?.sink.end();
        for warning in fed.warnings {
            say(format_args!("gputrace: warning: {warning}"));
        }
        match fed.written {
            Ok(count) => Ok((count, fed.left_out, exit_code)),
            Err(error) if path.is_none() && error.kind() == io::ErrorKind::BrokenPipe => {
                Ok((0, 0, exit_code))
            }
            Err(error) => Err(output::cut_short(path, &error)),
        }
    })?;
    summarise(format, count, is_filtered.then_some(left_out), path);
    Ok(exit_code)
}

/// Says what was written and what was left out; of stdout only the latter.
fn summarise(format: &FormatEntry, count: u64, left_out: Option<u64>, path: Option<&Path>) {
    let what = match format.name {
        OTLP_JSON => "span",
        "folded" => "line",
        _ => "event",
    };
    let what = if count == 1 { what.to_owned() } else { format!("{what}s") };
    let written_to = path.map_or_else(|| "on stdout".to_owned(), |path| format!("in {}", path.display()));
    match left_out {
        Some(left_out) => say(format_args!(
            "gputrace: {count} {what} {written_to}; {left_out} of the trace's events were left out by --filter, --from \
             or --to"
        )),
        None if path.is_some() => say(format_args!("gputrace: {count} {what} {written_to}")),
        None => {}
    }
}

/// What formats have a choice of, from the options and variables.
fn choices(matches: &ArgMatches) -> Choices {
    let Flames { ranges, group_by, .. } = Flames::new(matches);
    Choices { ranges, group_by, naming: otlp::naming(), sampling: otlp_options::sampling(&Given(matches)) }
}
