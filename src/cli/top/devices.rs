//! The devices of `top`: a monitor each, and what they say now.

use std::time::{Duration, SystemTime};

use gputrace_monitor::{GpuMetrics, GpuMonitor, Inventory, MonitorConfig};
use gputrace_tui::{DeviceView, ProcessRow, Scene};

use crate::cli::devices;

const HISTORY: Duration = Duration::from_secs(60);

pub struct Devices {
    monitors: Vec<GpuMonitor>,
    /// Why devices are missing.
    problems: Vec<String>,
}

impl Devices {
    pub fn open(config: &MonitorConfig) -> Devices {
        let inventory = Inventory::read(config);
        let mut problems = match devices::telling(&inventory.problems) {
            Some(problem) if inventory.devices.is_empty() => {
                let hint = problem.hint().map(|hint| format!("hint: {hint}"));
                [Some(format!("no GPU can be read: {problem}")), hint].into_iter().flatten().collect()
            }
            _ => devices::shown_problems(&inventory),
        };
        let mut monitors = Vec::new();
        for device in &inventory.devices {
            match inventory.monitor(device.index, config) {
                Ok(monitor) => monitors.push(monitor),
                Err(problem) => problems.push(problem.to_string()),
            }
        }
        Devices { monitors, problems }
    }

    /// The latest samples of the background collection.
    pub fn scene(&self) -> Scene {
        self.scene_of(|monitor| {
            let curve = monitor.history_of(HISTORY, |sample| sample.utilization.gpu_percent).into();
            let index = monitor.device_info().index;
            DeviceView {
                info: monitor.device_info().clone(),
                sample: monitor.latest().unwrap_or_else(|| GpuMetrics::empty(index)),
                history: curve,
                allocations: None,
            }
        })
    }

    /// Samples that are taken now.
    pub fn scene_now(&self) -> Scene {
        self.scene_of(|monitor| {
            let index = monitor.device_info().index;
            let sample = monitor.collect().unwrap_or_else(|problem| GpuMetrics::failed(index, problem));
            DeviceView {
                info: monitor.device_info().clone(),
                sample,
                history: Default::default(),
                allocations: None,
            }
        })
    }

    fn scene_of(&self, view: impl Fn(&GpuMonitor) -> DeviceView) -> Scene {
        let devices: Vec<DeviceView> = self.monitors.iter().map(view).collect();
        let processes = devices.iter().flat_map(processes_of).collect();
        Scene { devices, processes, problems: self.problems.clone(), time: time(), ..Scene::default() }
    }
}

fn processes_of(device: &DeviceView) -> Vec<ProcessRow> {
    let processes = device.sample.processes.iter().flatten();
    let row = |process: &gputrace_monitor::GpuProcess| ProcessRow {
        pid: process.pid,
        is_host_pid: process.is_host_pid,
        device: device.info.index,
        user: process.user.clone(),
        command: process.command.clone().or_else(|| process.name.clone()),
        memory: process.memory,
        gpu_percent: process.gpu_percent,
        allocations: None,
        is_traced: None,
    };
    processes.map(row).collect()
}

/// The local time of day.
fn time() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = libc::time_t::try_from(since.as_secs()).unwrap_or(0);
    // SAFETY: a tm of zeroes is a valid one.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: localtime_r reads the time and writes the tm; both outlive the call.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut parts) };
    format!("{:02}:{:02}:{:02}", parts.tm_hour, parts.tm_min, parts.tm_sec)
}
