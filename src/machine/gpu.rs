//! The driver and its devices.

use std::fs::{self, OpenOptions};
use std::io;

use crate::machine::finding::Finding;
use crate::workload::driver::{Driver, DriverError};

const SUBJECT: &str = "driver";

/// Initialises the driver in this process, which makes no context.
pub fn findings() -> Vec<Finding> {
    let driver = match Driver::open() {
        Ok(driver) => driver,
        Err(DriverError::Missing(why)) => {
            return vec![missing(&why)];
        }
        Err(error) => {
            return vec![
                Finding::broken(SUBJECT, error.to_string())
                    .hint("the driver is older than CUDA 11.4, or this libcuda.so.1 is not NVIDIA's"),
            ];
        }
    };
    let version = match driver.version() {
        Ok((major, minor)) => format!("supports CUDA {major}.{minor}"),
        Err(error) => error.to_string(),
    };
    let path = mapped("libcuda.so").unwrap_or_else(|| "libcuda.so.1".into());
    let kernel = kernel_module().map_or_else(String::new, |version| format!(", kernel module {version}"));
    let count = match driver.initialise() {
        Ok(count) => count,
        Err(error) => {
            return vec![
                Finding::broken(SUBJECT, format!("{path} {version}{kernel}; {error}"))
                    .hint(why_not_initialised()),
            ];
        }
    };
    let simulated = if driver.is_simulated() { " (simulated)" } else { "" };
    let mut findings = vec![Finding::good(SUBJECT, format!("{path}{simulated} {version}{kernel}"))];
    if count == 0 {
        findings.push(Finding::broken("device", "the driver has no device").hint("see CUDA_VISIBLE_DEVICES"));
    }
    for ordinal in 0..count {
        findings.push(match driver.name(ordinal) {
            Ok(name) => Finding::good("device", format!("{ordinal}: {name}")),
            Err(error) => Finding::broken("device", format!("{ordinal}: {error}")),
        });
    }
    findings
}

fn missing(why: &str) -> Finding {
    Finding::broken(SUBJECT, format!("cannot load libcuda.so.1: {why}")).hint(match kernel_module() {
        Some(version) => format!(
            "the kernel module {version} has no library: install libcuda of that version, or start the \
             container with --gpus"
        ),
        None => "no NVIDIA driver on this machine; gputrace demo and run --simulate work without one".into(),
    })
}

/// cuInit's code says little; the device files often say why.
fn why_not_initialised() -> String {
    for file in ["/dev/nvidiactl", "/dev/nvidia-uvm"] {
        match OpenOptions::new().read(true).write(true).open(file) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return format!("{file} is not open to this user: join the group that owns it");
            }
            Err(_) => {
                return format!(
                    "{file} cannot be opened: load the kernel module, or start the container with its GPU"
                );
            }
        }
    }
    "nvidia-smi may say more; a driver and library of different versions need a reboot".into()
}

/// The version of the loaded kernel module.
fn kernel_module() -> Option<String> {
    let text = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let version = text
        .lines()
        .next()?
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    Some(version.to_string())
}

/// Where in this process a library with that name is mapped from.
pub fn mapped(name: &str) -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|line| line.split_once('/').map(|(_, path)| format!("/{path}")));
    path.into_iter().find(|path| path.rsplit('/').next().is_some_and(|file| file.starts_with(name)))
}
