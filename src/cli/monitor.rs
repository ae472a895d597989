//! `gputrace monitor`: samples of all devices, for Prometheus, an OpenTelemetry back end, or stdout.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};
use gputrace_collector::metrics;
use gputrace_collector::otlp::{
    Asked, EncodedRequest, Exporter, ExporterConfig, OnDiagnostic, OnFull, Sender, Signal,
};
use gputrace_collector::report::grouped_count;
use gputrace_monitor::{GpuDeviceInfo, GpuMetrics, GpuMonitor, GpuMonitorHandle, Inventory, MonitorConfig};
use prost::Message;
use serde_json::json;

use crate::cli::failure::{Failure, reason};
use crate::cli::talk::say;
use crate::cli::{devices, exit_code, otlp, variables};
use crate::launch::signals;
use crate::sampling;
use crate::telemetry::hardware::Hardware;
use crate::telemetry::latest::Latest;
use crate::telemetry::page;
use crate::telemetry::server;

/// How long the end waits for an OpenTelemetry back end.
const DRAIN: Duration = Duration::from_secs(5);
/// Samples between the devices' threads and the one that writes them.
const QUEUE: usize = 4096;
/// Between two looks whether a signal asked for the end, where something else is waited for.
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// How long a wait is that a signal ends, where metrics are sent in between and where nothing else is to be
/// done. Each ends in a wake-up, which costs as much as half a sample; not longer, since a signal just before
/// it is seen afterwards only.
const SLEEPS: Duration = Duration::from_secs(2);
const SLEEPS_LONG: Duration = Duration::from_secs(5);

pub fn command() -> Command {
    Command::new("monitor")
        .about("Sample all GPUs until it is stopped: for Prometheus, OpenTelemetry, or as JSON lines")
        .after_help(
            "Without --prometheus and --otlp, samples are written as JSON lines. A device that goes away is\n\
             reported in its samples, and read again once it is back. The exit code is 1 if no device can be\n\
             read.",
        )
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("TIME")
                .default_value("1s")
                .value_parser(sampling::interval)
                .help("Between two samples: 10ms to 1h"),
        )
        .arg(
            Arg::new("prometheus")
                .long("prometheus")
                .value_name("[IP:]PORT")
                .value_parser(server::parse)
                .help("Serve /metrics for Prometheus; a port alone is for this machine only"),
        )
        .arg(
            Arg::new("json-lines")
                .long("json-lines")
                .action(ArgAction::SetTrue)
                .help("Write each sample to stdout as a line of JSON"),
        )
        .arg(
            Arg::new("otlp")
                .long("otlp")
                .value_name("URL|env")
                .help("Send hw.gpu.* metrics to an OpenTelemetry back end"),
        )
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let interval = matches.get_one::<Duration>("interval").copied().unwrap_or(sampling::INTERVAL_MIN);
    let (address, url) = (matches.get_one::<SocketAddr>("prometheus"), matches.get_one::<String>("otlp"));
    let writes = matches.get_flag("json-lines") || (address.is_none() && url.is_none());
    signals::hear_the_end();
    let config = MonitorConfig {
        poll_interval: interval,
        background_collection: false,
        history_size: 0,
        ..MonitorConfig::default()
    };
    let inventory = Inventory::read(&config);
    if inventory.devices.is_empty() {
        return Err(devices::no_device(&inventory.problems));
    }
    devices::shown_problems(&inventory).iter().for_each(|problem| warn(problem));
    let latest = Arc::new(Latest::new(inventory.devices.clone()));
    if let Some(address) = address {
        serve(*address, &latest)?;
    }
    let mut sending = url.map(|url| HardwareSending::start(url, &latest)).transpose()?;
    let (sampling, samples) = Sampling::start(&inventory, &config, interval, &latest, writes)?;
    let written = writes.then(|| start_writing(samples, inventory.devices.clone())).transpose()?;
    let result = wait_for_end(written.as_ref(), &mut sending);
    sampling.end();
    let exit_code = sending.map_or(exit_code::SUCCESS, HardwareSending::end);
    result.map(|()| exit_code)
}

fn warn(text: &str) {
    say(format_args!("gputrace: warning: {text}"));
}

fn serve(address: SocketAddr, latest: &Arc<Latest>) -> Result<(), Failure> {
    let (latest, host) = (Arc::clone(latest), host_name());
    let page = Arc::new(move || page::page(&latest, &host));
    let address = server::start(address, page).map_err(|error| {
        let failure = Failure::new(format!("cannot listen on {address}: {}", reason(&error)));
        failure.hint("choose another port").code(exit_code::collector::SYSTEM)
    })?;
    say(format_args!("gputrace: serves http://{address}/metrics"));
    Ok(())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// The devices that are being read.
struct Sampling {
    monitors: Vec<GpuMonitor>,
    _handles: Vec<GpuMonitorHandle>,
    /// Samples that the writer was too slow for.
    unwritten: Arc<AtomicU64>,
}

impl Sampling {
    /// A device that cannot be opened is warned about; if that is each of them, it is a failure.
    fn start(
        inventory: &Inventory,
        config: &MonitorConfig,
        interval: Duration,
        latest: &Arc<Latest>,
        writes: bool,
    ) -> Result<(Sampling, Receiver<GpuMetrics>), Failure> {
        let (sender, samples) = mpsc::sync_channel(QUEUE);
        let unwritten = Arc::new(AtomicU64::new(0));
        let (mut monitors, mut handles, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        for device in &inventory.devices {
            let monitor = match inventory.monitor(device.index, config) {
                Ok(monitor) => monitor,
                Err(problem) => {
                    latest.set(GpuMetrics::failed(device.index, problem.clone()));
                    warn(&format!("device {} is not sampled: {problem}", device.index));
                    problems.push(problem);
                    continue;
                }
            };
            let (latest, sender, unwritten) = (Arc::clone(latest), sender.clone(), Arc::clone(&unwritten));
            handles.push(if writes {
                monitor.start_background(interval, move |sample: GpuMetrics| {
                    if sender.try_send(sample.clone()).is_err() {
                        // Relaxed: a count, which guards nothing else.
                        unwritten.fetch_add(1, Ordering::Relaxed);
                    }
                    latest.set(sample);
                })
            } else {
                // Who asks for the page gets the latest one.
                monitor.start_changes(interval, move |sample| latest.set(sample))
            });
            monitors.push(monitor);
        }
        if monitors.is_empty() {
            return Err(devices::no_device(&problems));
        }
        Ok((Sampling { monitors, _handles: handles, unwritten }, samples))
    }

    /// Reports what fell out.
    fn end(self) {
        let missed: u64 = self.monitors.iter().map(GpuMonitor::missed_samples).sum();
        let unwritten = self.unwritten.load(Ordering::Relaxed);
        for (count, why) in [
            (missed, "were not taken: the driver was slower than the interval"),
            (unwritten, "were not written: stdout was too slow"),
        ] {
            if count > 0 {
                warn(&format!("{} samples {why}", grouped_count(count)));
            }
        }
    }
}

/// Sends until a signal asks for the end, or writing has failed. `written`: how writing ends, if samples are
/// written.
fn wait_for_end(
    written: Option<&Receiver<io::Result<()>>>,
    sending: &mut Option<HardwareSending>,
) -> Result<(), Failure> {
    let sleeps = if sending.is_some() { SLEEPS } else { SLEEPS_LONG };
    while !signals::is_end_wanted() {
        if let Some(sending) = sending {
            sending.send_if_due();
        }
        let Some(written) = written else {
            signals::sleep(sleeps);
            continue;
        };
        match written.recv_timeout(LOOKS_EVERY) {
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Ok(Err(error)) => {
                let failure = Failure::new(format!("cannot write to stdout: {}", reason(&error)));
                return Err(failure.code(exit_code::collector::WRITE_FAILED));
            }
            Err(RecvTimeoutError::Timeout) => {}
            // Nothing is written.
            Ok(Ok(())) | Err(RecvTimeoutError::Disconnected) => signals::sleep(sleeps),
        }
    }
    Ok(())
}

/// Writes samples on a thread of its own: a reader that stops reading must not keep signals waiting. Returns
/// how that ends.
fn start_writing(
    samples: Receiver<GpuMetrics>,
    devices: Vec<GpuDeviceInfo>,
) -> Result<Receiver<io::Result<()>>, Failure> {
    let (ended, written) = mpsc::channel();
    let work = move || {
        let result = samples.iter().try_for_each(|sample| write(&sample, &devices));
        // Nobody waits any more if this fails.
        let _ = ended.send(result);
    };
    let started = std::thread::Builder::new().name("write".into()).spawn(work);
    started.map_err(|error| {
        let failure = Failure::new(format!("cannot start a thread: {}", reason(&error)));
        failure.code(exit_code::collector::SYSTEM)
    })?;
    Ok(written)
}

fn write(sample: &GpuMetrics, devices: &[GpuDeviceInfo]) -> io::Result<()> {
    let mut line = json!(sample);
    let device = devices.iter().find(|device| device.index == sample.device_index);
    if let (Some(device), Some(fields)) = (device, line.as_object_mut()) {
        fields.insert("name".into(), json!(device.name));
        fields.insert("uuid".into(), json!(device.uuid));
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// What goes to an OpenTelemetry back end.
struct HardwareSending {
    exporter: Exporter,
    sender: Sender,
    hardware: Hardware,
    latest: Arc<Latest>,
    every: Duration,
    next: Instant,
}

impl HardwareSending {
    fn start(url: &str, latest: &Arc<Latest>) -> Result<HardwareSending, Failure> {
        let wrong =
            |why: String| Failure::new(format!("nothing is sent over OTLP: {why}")).code(exit_code::USAGE);
        let config =
            ExporterConfig::new(&Asked::parse(url), otlp::variable).map_err(wrong)?.only(Signal::Metrics);
        config.notes.iter().for_each(|note| warn(note));
        if config.is_empty() {
            return Err(wrong("the environment switches it off".to_owned()));
        }
        let interval = otlp::variable("OTEL_METRIC_EXPORT_INTERVAL");
        let (settings, complaints) = metrics::Settings::from_variables(interval.as_deref(), None);
        complaints.iter().for_each(|complaint| warn(complaint));
        let notify: OnDiagnostic = Arc::new(warn);
        let exporter = Exporter::start(config, Vec::new(), notify, None).map_err(wrong)?;
        let service = otlp::variable("OTEL_SERVICE_NAME").filter(|name| !name.is_empty());
        let every = Duration::from_nanos(settings.interval_ns);
        Ok(HardwareSending {
            sender: exporter.sender(),
            exporter,
            hardware: Hardware::new(service.as_deref().unwrap_or("gputrace-monitor"), &host_name()),
            latest: Arc::clone(latest),
            every,
            next: Instant::now() + every,
        })
    }

    fn send_if_due(&mut self) {
        if Instant::now() >= self.next {
            self.next = Instant::now() + self.every;
            self.send();
        }
    }

    fn send(&mut self) {
        let (request, items) = self.hardware.request(&self.latest);
        if items > 0 {
            let request = EncodedRequest { body: request.encode_to_vec(), items };
            self.sender.send(Signal::Metrics, request, OnFull::DropsOldest);
        }
    }

    /// Sends the last samples, and reports what became of all.
    fn end(mut self) -> u8 {
        self.send();
        let status = self.exporter.finish(DRAIN);
        for line in status
            .of(Signal::Metrics)
            .into_iter()
            .flat_map(|status| otlp::status_lines(Signal::Metrics, status))
        {
            say(format_args!("{line}"));
        }
        if status.is_all_delivered() { exit_code::SUCCESS } else { exit_code::collector::UNDELIVERED }
    }
}
