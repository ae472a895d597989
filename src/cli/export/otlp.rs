//! `export --otlp` and `export --signal metrics`: what is sent to a back end, and metrics in a file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use gputrace_collector::export::FormatEntry;
use gputrace_collector::metrics::{self, Metrics, Settings};
use gputrace_collector::otlp::{Asked, Exporter, ExporterConfig, OnDiagnostic, OnFull, Signal};
use gputrace_collector::spans::{Naming, SpanBatcher, SpanSink};

use crate::cli::export::output;
use crate::cli::failure::Failure;
use crate::cli::given::Given;
use crate::cli::talk::say;
use crate::cli::{exit_code, otlp, traces};

/// Writes metrics instead of spans, which need one pass only.
pub fn write_metrics(
    matches: &ArgMatches,
    format: &FormatEntry,
    inputs: Vec<PathBuf>,
    path: Option<&Path>,
) -> Result<u8, Failure> {
    let (count, exit_code) = output::write_to(path, format, |destination| {
        let output = destination.stream().map_err(|error| output::cut_short(path, &error))?;
        let metrics = Metrics::new(metrics::MetricJson::new(output), metrics_settings(matches));
        let (replay, exit_code) = traces::replay(inputs, metrics)?;
        let (complaints, written) = replay.sink.finish();
        for complaint in complaints {
            say(format_args!("gputrace: warning: {complaint}"));
        }
        match written.finish() {
            Ok((count, _)) => Ok((count, exit_code)),
            Err(error) if path.is_none() && error.kind() == io::ErrorKind::BrokenPipe => Ok((0, exit_code)),
            Err(error) => Err(output::cut_short(path, &error)),
        }
    })?;
    if let Some(path) = path {
        say(format_args!("gputrace: {count} requests of metrics in {}", path.display()));
    }
    Ok(exit_code)
}

pub fn signal(matches: &ArgMatches) -> Signal {
    match matches.get_one::<String>("signal").map(String::as_str) {
        Some("metrics") => Signal::Metrics,
        _ => Signal::Traces,
    }
}

/// Sends a signal, as fast as it is taken.
pub fn send(matches: &ArgMatches, asked: &Asked) -> Result<u8, Failure> {
    let wrong =
        |why: String| Failure::new(format!("nothing is sent over OTLP: {why}")).code(exit_code::USAGE);
    let signal = signal(matches);
    let config = ExporterConfig::new(asked, otlp::variable).map_err(wrong)?.only(signal);
    config.notes.iter().for_each(|note| say(format_args!("gputrace: warning: {note}")));
    if config.is_empty() {
        return Err(wrong("the environment switches it off".to_owned()));
    }
    let inputs = traces::named(matches)?.files()?;
    let patience = config.timeout() * 3;
    let notify: OnDiagnostic = Arc::new(|text| say(format_args!("gputrace: warning: {text}")));
    let (live, source) = SpanBatcher::new(naming(), OnFull::Waits);
    let exporter = Exporter::start(config, vec![source], notify, Some(patience)).map_err(wrong)?;
    let sender = exporter.sender();
    let (complaints, exit_code) = match signal {
        Signal::Traces => {
            let spans = SpanSink::new(live.send_by(sender), otlp::sampling(&Given(matches)));
            let (replay, exit_code) = traces::replay(inputs, spans)?;
            let (complaints, live) = replay.sink.finish();
            live.flush();
            (complaints, exit_code)
        }
        Signal::Metrics => {
            let metrics =
                Metrics::new(metrics::MetricsSender::new(sender, OnFull::Waits), metrics_settings(matches));
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
fn metrics_settings(matches: &ArgMatches) -> Settings {
    let given = Given(matches);
    let (settings, complaints) = otlp::metrics_settings(&given, otlp::sampling(&given));
    for complaint in complaints {
        say(format_args!("gputrace: warning: {complaint}"));
    }
    Settings { naming: naming(), ..settings }
}

/// By our own environment. A malformed variable is warned about and not used.
pub fn naming() -> Naming {
    let variable = |name| std::env::var(name).ok();
    let service = variable("OTEL_SERVICE_NAME");
    let attributes = variable("OTEL_RESOURCE_ATTRIBUTES");
    Naming::new(service.clone(), attributes.as_deref()).unwrap_or_else(|why| {
        say(format_args!("gputrace: warning: {why}"));
        Naming::new(service, None).unwrap_or_default()
    })
}
