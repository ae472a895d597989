//! How often devices are read, how much is kept, and where their drivers are looked for.

use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitorConfig {
    /// Between two samples.
    pub poll_interval: Duration,
    /// How many samples [`GpuMonitor::history`](crate::GpuMonitor::history) can give.
    pub history_size: usize,
    /// Whether a monitor takes samples by itself from its start, for its history.
    pub background_collection: bool,
    pub trace_exporter: TraceExporter,
    /// Between two pictures of a dashboard.
    pub dashboard_refresh: Duration,
    /// Between two readings of utilisation and power, which NVIDIA's driver averages, and of memory while it
    /// changes. Each sample has the multiprocessors' clock, and while it or they change, why clocks are
    /// lowered.
    pub load_interval: Duration,
    /// Between two readings of the multiprocessors' clock where it has not changed for five readings.
    pub clock_interval: Duration,
    /// Between two readings of temperatures and fan, and of why clocks are lowered where that has not changed
    /// for five readings. Memory that has not changed is read half as often, which takes NVIDIA's driver
    /// longer; other clocks, the performance state and the video engines' utilisation a quarter as often, and
    /// a tenth where none of them changes; the link a fiftieth.
    pub sensor_interval: Duration,
    /// Between two readings of what takes a driver long (PCIe throughput: over 20 ms each way); `None`:
    /// never.
    pub slow_interval: Option<Duration>,
    /// Between two readings of the counters of errors, where slow things are read; those of lowered clocks
    /// are read with PCIe throughput, and no more often than these.
    pub counters_interval: Duration,
    /// Between two lists of the processes while they or the device's memory change, and half as often
    /// otherwise. Their utilisation is read a twelfth as often, where slow things are read and there are any.
    pub process_interval: Duration,
    /// Between two readings of the energy counter, which takes NVIDIA's driver 3 ms of processor time.
    pub energy_interval: Duration,
    /// Whether samples list the processes on their device.
    pub processes: bool,
    /// After how long a driver call counts as hanging.
    pub answer_limit: Duration,
    /// The same for listing and opening devices: a driver takes seconds for each device that sleeps.
    pub start_limit: Duration,
    pub sources: Sources,
}

impl Default for MonitorConfig {
    fn default() -> MonitorConfig {
        MonitorConfig {
            poll_interval: Duration::from_millis(100),
            history_size: 600,
            background_collection: true,
            trace_exporter: TraceExporter::None,
            dashboard_refresh: Duration::from_millis(500),
            load_interval: Duration::from_millis(500),
            clock_interval: Duration::from_millis(500),
            sensor_interval: Duration::from_millis(500),
            slow_interval: Some(Duration::from_secs(60)),
            counters_interval: Duration::from_secs(30),
            process_interval: Duration::from_secs(5),
            energy_interval: Duration::from_secs(60),
            processes: true,
            answer_limit: Duration::from_secs(2),
            start_limit: Duration::from_secs(30),
            sources: Sources::default(),
        }
    }
}

/// Where samples are sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TraceExporter {
    #[default]
    None,
    /// An OpenTelemetry back end, by its URL.
    Otlp(String),
}

/// Where drivers are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// libnvidia-ml, instead of looking for it: the value of `GPUTRACE_NVML`.
    pub nvml: Option<PathBuf>,
    /// What stands for `/sys`: the value of `GPUTRACE_SYSFS`.
    pub sysfs: PathBuf,
    /// What stands for `/proc`.
    pub proc: PathBuf,
}

/// Names a libnvidia-ml to load instead of the installed one.
pub const NVML_VARIABLE: &str = "GPUTRACE_NVML";
/// Names a folder to read instead of `/sys`.
pub const SYSFS_VARIABLE: &str = "GPUTRACE_SYSFS";

impl Default for Sources {
    fn default() -> Sources {
        let path = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        Sources {
            nvml: path(NVML_VARIABLE),
            sysfs: path(SYSFS_VARIABLE).unwrap_or_else(|| PathBuf::from("/sys")),
            proc: PathBuf::from("/proc"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_a_minute_at_ten_samples_a_second() {
        let config = MonitorConfig::default();
        assert_eq!(config.poll_interval, Duration::from_millis(100));
        assert_eq!(config.history_size, 600);
        assert!(config.background_collection);
        assert_eq!(config.trace_exporter, TraceExporter::None);
        assert_eq!(config.dashboard_refresh, Duration::from_millis(500));
        assert_eq!(config.load_interval, Duration::from_millis(500));
        assert_eq!(config.sensor_interval, Duration::from_millis(500));
    }
}
