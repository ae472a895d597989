//! `--otlp`: what a recording sends while it runs, and the messages about that.
//!
//! Whatever is wrong with a back end, or with what was asked, the program runs and is recorded: the
//! trace holds everything, and `gputrace export --otlp` sends it later.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Arg;
use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::live::LiveAggregates;
use gputrace_collector::metrics::{self, Metrics, Settings};
use gputrace_collector::otlp::{
    Asked, ExportStatus, Exporter, ExporterConfig, OnDiagnostic, OnFull, Sender, Signal, SignalStatus,
};
use gputrace_collector::report::grouped_count;
use gputrace_collector::session::Recording;
use gputrace_collector::spans::{Naming, Sampling, SpanBatcher, SpanSink};

use crate::cli::given::Given;
use crate::cli::options::{self, Setting};
use crate::cli::output_folder::TRACE;
use crate::cli::printable;
use crate::cli::talk::say;
use crate::launch::signals;

/// What the model of a live session feeds.
pub type Sinks = (LiveAggregates, SentSinks);
/// Those whose findings are sent.
type SentSinks = (Option<SpanSink<SpanBatcher>>, Option<Metrics<metrics::MetricsSender>>);

/// What is sent, and where.
#[derive(Clone, Debug)]
pub struct Request {
    asked: Option<Asked>,
    sampling: Sampling,
    metrics: (Settings, Vec<String>),
}

impl Request {
    pub fn new(given: &Given<'_>) -> Request {
        let asked = text(given, &options::OTLP).filter(|text| text != OFF);
        let sampling = sampling(given);
        let metrics = metrics_settings(given, sampling);
        Request { asked: asked.map(|text| Asked::parse(&text)), sampling, metrics }
    }
}

/// How often the wait for a back end looks whether it is over.
const LOOKS_EVERY: Duration = Duration::from_millis(2);

/// What switches it off where a variable is set for all.
pub const OFF: &str = "off";

/// The option's value, else the variable's; a variable of blanks counts as unset.
fn text(given: &Given<'_>, setting: &Setting) -> Option<String> {
    let variable = || Some(setting.variable_text()?.trim().to_owned()).filter(|text| !text.is_empty());
    given.option(setting).or_else(variable)
}

/// What becomes a span. A variable that makes no sense was warned about.
pub fn sampling(given: &Given<'_>) -> Sampling {
    let usual = Sampling::default();
    let all = text(given, &options::ALL_SPANS).is_some_and(|all| all == "on");
    let rate = given.number(&options::SPANS_PER_SECOND).filter(|rate| *rate > 0).map(|rate| rate as usize);
    let threshold_us = given.number(&options::THRESHOLD_US);
    Sampling {
        threshold_ns: threshold_us.map_or(usual.threshold_ns, |us| u64::from(us) * 1000),
        all,
        rate: if all { None } else { rate.or(usual.rate) },
    }
}

/// The settings of metrics, and complaints about variables whose value is not used.
pub fn metrics_settings(given: &Given<'_>, sampling: Sampling) -> (Settings, Vec<String>) {
    let (settings, complaints) = Settings::from_variables(
        variable("OTEL_METRIC_EXPORT_INTERVAL").as_deref(),
        variable("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE").as_deref(),
    );
    let kernels = given.number(&options::METRICS_KERNELS).map_or(0, |kernels| kernels as usize);
    (Settings { kernels: kernels.min(metrics::KERNELS_MAX), sampling, ..settings }, complaints)
}

/// The options for what becomes a span and what has metrics of its own.
pub fn arguments() -> impl Iterator<Item = Arg> {
    let settings =
        [&options::THRESHOLD_US, &options::ALL_SPANS, &options::SPANS_PER_SECOND, &options::METRICS_KERNELS];
    settings.into_iter().filter_map(Setting::argument)
}

/// Looks up an OTEL_ variable.
pub fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// When warnings are printed: at once, or (where nobody reads stderr) with the summary at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Audience {
    Person,
    Nobody,
}

/// A recording's sender.
#[derive(Debug)]
pub struct Sending {
    exporter: Option<Exporter>,
    limit: Duration,
    /// Warnings to be printed at the end.
    unsaid: Arc<Mutex<Vec<String>>>,
}

/// What became of it.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    pub status: Option<ExportStatus>,
    warnings: Vec<String>,
}

/// The sinks of a recording, and its sender. `limit`: the most that its end waits for a back end.
pub fn start(request: &Request, audience: Audience, limit: Duration) -> (Sinks, Sending) {
    let unsaid = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&unsaid);
    let notify: OnDiagnostic = Arc::new(move |text| match audience {
        Audience::Person => say(format_args!("{}", warning(text))),
        Audience::Nobody => hears.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned()),
    });
    let nothing = Sending { exporter: None, limit, unsaid };
    let Some(asked) = &request.asked else { return (Sinks::default(), nothing) };
    let started = ExporterConfig::new(asked, variable).and_then(|config| {
        config.notes.iter().for_each(|note| notify(note));
        if config.is_empty() {
            return Ok(None);
        }
        let limit = config.drain_limit().min(limit);
        let (live, source) = SpanBatcher::new(Naming::default(), OnFull::DropsOldest);
        let exporter = Exporter::start(config, vec![source], Arc::clone(&notify), None)?;
        Ok(Some((exporter, live, limit)))
    });
    let (exporter, live, limit) = match started {
        Ok(Some(started)) => started,
        Ok(None) => return (Sinks::default(), nothing),
        Err(why) => {
            notify(&format!(
                "nothing is sent over OTLP: {why}\n  hint: the program runs and is recorded all the same"
            ));
            return (Sinks::default(), nothing);
        }
    };
    let sender = exporter.sender();
    let spans =
        sender.sends(Signal::Traces).then(|| SpanSink::new(live.send_by(sender.clone()), request.sampling));
    let metrics = sender.sends(Signal::Metrics).then(|| {
        let (settings, complaints) = &request.metrics;
        complaints.iter().for_each(|complaint| notify(complaint));
        Metrics::new(metrics::MetricsSender::new(sender, OnFull::DropsOldest), settings.clone())
    });
    ((LiveAggregates::default(), (spans, metrics)), Sending { exporter: Some(exporter), limit, ..nothing })
}

impl Sending {
    /// For asking about the state of the sending.
    pub fn sender(&self) -> Option<Sender> {
        self.exporter.as_ref().map(Exporter::sender)
    }

    /// Takes the spans out of a recording that has ended, and begins to send the last of them.
    pub fn take_last(&mut self, recording: Recording<Sinks>) -> Recording<Aggregates> {
        let (recording, (spans, metrics)) = recording.with_sink(|(live, sent)| (live.aggregates, sent));
        let mut complaints = Vec::new();
        if let Some(spans) = spans {
            let (found, live) = spans.finish();
            live.flush();
            complaints.extend(found);
        }
        if let Some(metrics) = metrics {
            // Both read what the processes were given.
            let (found, _) = metrics.finish();
            complaints
                .extend(found.into_iter().filter(|text| !complaints.contains(text)).collect::<Vec<_>>());
        }
        self.unsaid.lock().unwrap_or_else(PoisonError::into_inner).extend(complaints);
        if let Some(exporter) = &self.exporter {
            exporter.order_end(self.limit);
        }
        recording
    }

    /// Waits until all is sent, the limit is over, or a signal ends the wait.
    pub fn finish(self) -> Sent {
        if let Some(exporter) = &self.exporter {
            exporter.order_end(self.limit);
            while !exporter.has_ended() && !signals::is_end_wanted() {
                std::thread::sleep(LOOKS_EVERY);
            }
            if !exporter.has_ended() {
                exporter.order_end(Duration::ZERO);
            }
        }
        let status = self.exporter.map(|exporter| exporter.finish(self.limit));
        let unsaid = std::mem::take(&mut *self.unsaid.lock().unwrap_or_else(PoisonError::into_inner));
        Sent { status, warnings: unsaid }
    }
}

impl Sent {
    /// The lines to print after the summary.
    pub fn text(&self, folder: &Path) -> String {
        let mut lines: Vec<String> = self.warnings.iter().map(|text| warning(text)).collect();
        for signal in Signal::ALL {
            let Some(status) = self.status.as_ref().and_then(|status| status.of(signal)) else { continue };
            lines.extend(status_lines(signal, status));
            if status.queued + status.dropped > 0 && signal == Signal::Traces {
                let trace = folder.join(TRACE);
                lines.push(format!(
                    "  hint: send them later from the trace: gputrace export --otlp URL {}",
                    printable::name(&trace)
                ));
            }
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }
}

/// One signal's numbers, and as a warning what was not delivered.
pub fn status_lines(signal: Signal, status: &SignalStatus) -> Vec<String> {
    let items = signal.items();
    let SignalStatus { endpoint, protocol, .. } = status;
    let mut lines = vec![format!(
        "gputrace: sent {} {items} to {} ({protocol}, {} request{}, {} retr{})",
        grouped_count(status.sent),
        printable::text(endpoint),
        grouped_count(status.requests),
        if status.requests == 1 { "" } else { "s" },
        grouped_count(status.retries),
        if status.retries == 1 { "y" } else { "ies" },
    )];
    if status.undelivered() > 0 {
        let parts = [
            (status.queued, "unsent at the end"),
            (status.dropped, "dropped from the full queue"),
            (status.rejected, "rejected by the back end"),
        ];
        let parts: Vec<_> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{} {what}", grouped_count(count)))
            .collect();
        let error = status.last_error.as_deref().unwrap_or("no answer in time");
        lines.push(warning(&format!(
            "OTLP: not delivered: {} {items}, {}; the last error: {error}",
            grouped_count(status.undelivered()),
            parts.join(", "),
        )));
    }
    lines
}

fn warning(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(|line| printable::text(line).to_string()).collect();
    format!("gputrace: warning: {}", lines.join("\n"))
}
