//! `gputrace export`: traces in the formats of other tools.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use gputrace_collector::metrics::{self, Metrics, Settings};
use gputrace_collector::spans::{Naming, OtlpJson, Sampling, Spans};

use crate::cli::failure::{Failure, reason};
use crate::cli::output_folder::stream_whole;
use crate::cli::talk::say;
use crate::cli::{exit_code, traces, variables};

pub fn command() -> Command {
    Command::new("export")
        .about("Write traces as spans or metrics, for OpenTelemetry's tools")
        .after_help(
            "otlp-json is one request a line, as the OpenTelemetry Collector reads and writes it. Names and attributes \
             are described in docs/SPANS.md and docs/METRICS.md. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over what the \
             program had of them. OTEL_METRIC_EXPORT_INTERVAL and OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE \
             say how often metrics are told, and whether as totals.",
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .value_parser(["otlp-json"])
                .required(true)
                .help("What to write"),
        )
        .arg(
            Arg::new("signal")
                .long("signal")
                .value_name("SIGNAL")
                .value_parser(["traces", "metrics"])
                .default_value("traces")
                .help("Spans, or metrics: a file has one of them"),
        )
        .arg(
            Arg::new("kernels")
                .long("metrics-kernels")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=metrics::KERNELS_MAX as i64))
                .help("So many kernels have metrics of their own, those that take the most time [default: none]"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("The file to write [default: stdout]"),
        )
        .arg(
            Arg::new("threshold")
                .long("threshold-us")
                .value_name("MICROSECONDS")
                .value_parser(value_parser!(u32))
                .help("How long something must take to become a span; failed calls and anomalies always do [default: 100]"),
        )
        .arg(
            Arg::new("all")
                .long("all")
                .action(ArgAction::SetTrue)
                .help("Everything becomes a span, however short and however many"),
        )
        .arg(
            Arg::new("rate")
                .long("spans-per-second")
                .value_name("NUMBER")
                .value_parser(value_parser!(u32).range(1..=1_000_000))
                .conflicts_with("all")
                .help("The most that a process may have a second; the slowest win [default: 10000]"),
        )
        .arg(traces::argument())
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let inputs = traces::paths(matches);
    match matches.get_one::<PathBuf>("output") {
        Some(path) => {
            traces::refuse_an_input(path, &inputs)?;
            stream_whole(path, |file| export(matches, BufWriter::with_capacity(1 << 16, file), Some(path)))
        }
        None => export(matches, BufWriter::with_capacity(1 << 16, io::stdout().lock()), None),
    }
}

fn export(matches: &ArgMatches, output: impl Write, path: Option<&Path>) -> Result<u8, Failure> {
    if matches.get_one::<String>("signal").is_some_and(|signal| signal == "metrics") {
        let metrics = Metrics::new(metrics::OtlpJson::new(output), settings(matches));
        let (replay, exit_code) = traces::replay(matches, metrics)?;
        let (complaints, written) = replay.sink.finish();
        return written_to(written.finish(), "requests of metrics", complaints, path, exit_code);
    }
    let spans = Spans::new(OtlpJson::new(output, naming()), sampling(matches));
    let (replay, exit_code) = traces::replay(matches, spans)?;
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

/// How metrics are told, by our own environment and what was asked for.
fn settings(matches: &ArgMatches) -> Settings {
    let variable = |name| std::env::var(name).ok();
    let (settings, complaints) = Settings::from_variables(
        variable("OTEL_METRIC_EXPORT_INTERVAL").as_deref(),
        variable("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE").as_deref(),
    );
    for complaint in complaints {
        say(format_args!("gputrace: warning: {complaint}"));
    }
    let kernels = matches.get_one::<u32>("kernels").map_or(0, |kernels| *kernels as usize);
    Settings { kernels, sampling: sampling(matches), naming: naming(), ..settings }
}

fn sampling(matches: &ArgMatches) -> Sampling {
    let usual = Sampling::default();
    let all = matches.get_flag("all");
    let threshold_us = matches.get_one::<u32>("threshold");
    let rate = matches.get_one::<u32>("rate").map(|rate| *rate as usize);
    Sampling {
        threshold_ns: threshold_us.map_or(usual.threshold_ns, |us| u64::from(*us) * 1000),
        all,
        rate: if all { None } else { rate.or(usual.rate) },
        ..usual
    }
}

/// By our own environment. What is malformed there is said, and not used.
fn naming() -> Naming {
    let variable = |name| std::env::var(name).ok();
    let service = variable("OTEL_SERVICE_NAME");
    let attributes = variable("OTEL_RESOURCE_ATTRIBUTES");
    Naming::new(service.clone(), attributes.as_deref()).unwrap_or_else(|why| {
        say(format_args!("gputrace: warning: {why}"));
        Naming::new(service, None).unwrap_or_default()
    })
}
