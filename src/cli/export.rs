//! `gputrace export`: traces in the formats of other tools.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgMatches, Command};
use gputrace_collector::metrics::{self, Metrics, Settings};
use gputrace_collector::otlp::{Asked, Config, Exporter, Full, Live, News, Signal};
use gputrace_collector::spans::{Naming, OtlpJson, Spans};

use crate::cli::failure::{Failure, reason};
use crate::cli::given::Given;
use crate::cli::output_folder::stream_whole;
use crate::cli::talk::say;
use crate::cli::{exit_code, otlp, output_argument, traces, variables};

/// The formats of `--format`, and what each is.
const FORMATS: [(&str, &str); 1] =
    [("otlp-json", "OpenTelemetry spans or metrics, one request a line, as the Collector reads them")];

pub fn command() -> Command {
    Command::new("export")
        .about("Write traces as spans or metrics, for OpenTelemetry's tools, or send them")
        .next_line_help(true)
        .after_help(
            "otlp-json is one request a line, as the OpenTelemetry Collector reads and writes it. Names and\n\
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
                .value_parser(FORMATS.map(|(name, _)| name))
                .conflicts_with("otlp")
                .help("What to write"),
        )
        .arg(
            Arg::new("otlp")
                .long("otlp")
                .value_name("URL|env")
                .value_parser(NonEmptyStringValueParser::new())
                .conflicts_with("output")
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
        .arg(output_argument::file())
        .args(otlp::arguments())
        .arg(traces::argument())
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    if let Some(asked) = matches.get_one::<String>("otlp") {
        return send(matches, &Asked::parse(asked));
    }
    if matches.get_one::<String>("format").is_none() {
        return Err(no_format());
    }
    let inputs = traces::named(matches)?.files()?;
    match matches.get_one::<PathBuf>("output") {
        Some(path) => {
            traces::refuse_an_input(path, &inputs)?;
            stream_whole(path, |file| {
                export(matches, inputs.clone(), BufWriter::with_capacity(1 << 16, file), Some(path))
            })
        }
        None => export(matches, inputs, BufWriter::with_capacity(1 << 16, io::stdout().lock()), None),
    }
}

/// The formats that can be asked for, as an error of the command line.
fn no_format() -> Failure {
    say(format_args!("gputrace export writes these formats:\n"));
    for (name, what) in FORMATS {
        say(format_args!("  --format {name:<12}  {what}"));
    }
    say(format_args!(
        "  --otlp URL             send spans or metrics to an OpenTelemetry back end at that URL\n"
    ));
    Failure::new("no format was named")
        .hint("for example: gputrace export --format otlp-json -o spans.jsonl TRACE")
        .code(exit_code::USAGE)
}

fn export(
    matches: &ArgMatches,
    inputs: Vec<PathBuf>,
    output: impl Write,
    path: Option<&Path>,
) -> Result<u8, Failure> {
    if signal(matches) == Signal::Metrics {
        let metrics = Metrics::new(metrics::OtlpJson::new(output), settings(matches));
        let (replay, exit_code) = traces::replay(inputs, metrics)?;
        let (complaints, written) = replay.sink.finish();
        return written_to(written.finish(), "requests of metrics", complaints, path, exit_code);
    }
    let spans = Spans::new(OtlpJson::new(output, naming()), otlp::sampling(&Given(matches)));
    let (replay, exit_code) = traces::replay(inputs, spans)?;
    let (complaints, written) = replay.sink.finish();
    written_to(written.finish(), "spans", complaints, path, exit_code)
}

/// Says what was written, or why not.
fn written_to<W>(
    written: io::Result<(u64, W)>,
    what: &str,
    complaints: Vec<String>,
    path: Option<&Path>,
    exit_code: u8,
) -> Result<u8, Failure> {
    for complaint in complaints {
        say(format_args!("gputrace: warning: {complaint}"));
    }
    match (written, path) {
        (Ok((count, _)), Some(path)) => {
            say(format_args!("gputrace: {count} {what} in {}", path.display()));
            Ok(exit_code)
        }
        (Ok(_), None) => Ok(exit_code),
        (Err(error), None) if error.kind() == io::ErrorKind::BrokenPipe => Ok(exit_code),
        (Err(error), path) => {
            let name = path.map_or_else(|| "stdout".to_owned(), |path| path.display().to_string());
            let failure = Failure::new(format!("cannot write to {name}: {}", reason(&error)));
            Err(failure.code(exit_code::collector::WRITE_FAILED))
        }
    }
}

fn signal(matches: &ArgMatches) -> Signal {
    match matches.get_one::<String>("signal").map(String::as_str) {
        Some("metrics") => Signal::Metrics,
        _ => Signal::Traces,
    }
}

/// Sends a signal, as fast as it is taken.
fn send(matches: &ArgMatches, asked: &Asked) -> Result<u8, Failure> {
    let wrong =
        |why: String| Failure::new(format!("nothing is sent over OTLP: {why}")).code(exit_code::USAGE);
    let signal = signal(matches);
    let config = Config::new(asked, otlp::variable).map_err(wrong)?.only(signal);
    config.notes.iter().for_each(|note| say(format_args!("gputrace: warning: {note}")));
    if config.is_empty() {
        return Err(wrong("the environment switches it off".to_owned()));
    }
    let inputs = traces::named(matches)?.files()?;
    let patience = config.timeout() * 3;
    let notify: News = Arc::new(|text| say(format_args!("gputrace: warning: {text}")));
    let (live, source) = Live::new(naming(), Full::Waits);
    let exporter = Exporter::start(config, vec![source], notify, Some(patience)).map_err(wrong)?;
    let sender = exporter.sender();
    let (complaints, exit_code) = match signal {
        Signal::Traces => {
            let spans = Spans::new(live.send_by(sender), otlp::sampling(&Given(matches)));
            let (replay, exit_code) = traces::replay(inputs, spans)?;
            let (complaints, live) = replay.sink.finish();
            live.flush();
            (complaints, exit_code)
        }
        Signal::Metrics => {
            let metrics = Metrics::new(metrics::Live::new(sender, Full::Waits), settings(matches));
            let (replay, exit_code) = traces::replay(inputs, metrics)?;
            (replay.sink.finish().0, exit_code)
        }
    };
    for complaint in complaints {
        say(format_args!("gputrace: warning: {complaint}"));
    }
    // It gives up by itself where nothing is taken.
    let status = exporter.finish(Duration::MAX);
    for line in status.of(signal).into_iter().flat_map(|status| otlp::status_lines(signal, status)) {
        say(format_args!("{line}"));
    }
    Ok(if status.is_all_delivered() { exit_code } else { exit_code::collector::UNDELIVERED })
}

/// The settings of metrics, from the options and our own environment.
fn settings(matches: &ArgMatches) -> Settings {
    let given = Given(matches);
    let (settings, complaints) = otlp::metrics_settings(&given, otlp::sampling(&given));
    for complaint in complaints {
        say(format_args!("gputrace: warning: {complaint}"));
    }
    Settings { naming: naming(), ..settings }
}

/// By our own environment. A malformed variable is warned about and not used.
fn naming() -> Naming {
    let variable = |name| std::env::var(name).ok();
    let service = variable("OTEL_SERVICE_NAME");
    let attributes = variable("OTEL_RESOURCE_ATTRIBUTES");
    Naming::new(service.clone(), attributes.as_deref()).unwrap_or_else(|why| {
        say(format_args!("gputrace: warning: {why}"));
        Naming::new(service, None).unwrap_or_default()
    })
}
