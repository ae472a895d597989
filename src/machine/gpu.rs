//! The driver and its devices.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;

use crate::machine::finding::Finding;
use crate::machine::host;
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
                    .hint("the driver is older than CUDA 11.4, or this libcuda.so.1 is not NVIDIA's: install a newer one")
                    .commands(host::driver_packages()),
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
            let broken = Finding::broken(SUBJECT, format!("{path} {version}{kernel}; {error}"));
            return vec![why_not_initialised(broken)];
        }
    };
    let simulated = if driver.is_simulated() { " (simulated)" } else { "" };
    let mut findings = vec![Finding::good(SUBJECT, format!("{path}{simulated} {version}{kernel}"))];
    if count == 0 {
        findings.push(no_device());
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
    let finding = Finding::broken(SUBJECT, format!("cannot load libcuda.so.1: {why}"));
    match kernel_module() {
        Some(_) if host::is_container() => finding.hint(host::START_CONTAINER),
        Some(version) => finding
            .hint(format!("the kernel module {version} has no library: install libcuda of that version"))
            .commands(host::library_packages(&version)),
        None if host::has_gpu() && !host::is_container() => finding
            .hint("this machine has an NVIDIA GPU and no driver: install it, then restart the machine")
            .commands(host::driver_packages()),
        None => finding
            .hint("no NVIDIA driver on this machine; gputrace demo and run --simulate work without one")
            .command("gputrace demo"),
    }
}

fn no_device() -> Finding {
    let finding = Finding::broken("device", "the driver has no device");
    if std::env::var_os("CUDA_VISIBLE_DEVICES").is_some() {
        return finding.hint("CUDA_VISIBLE_DEVICES hides them").command("unset CUDA_VISIBLE_DEVICES");
    }
    if host::is_container() {
        return finding.hint(host::START_CONTAINER);
    }
    finding.hint("nvidia-smi lists the devices that the kernel module has").command("nvidia-smi -L")
}

/// cuInit's code says little; the device files often say why.
fn why_not_initialised(finding: Finding) -> Finding {
    for file in ["/dev/nvidiactl", "/dev/nvidia-uvm"] {
        match OpenOptions::new().read(true).write(true).open(file) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let group = fs::metadata(file).ok().and_then(|found| host::group_name(found.gid()));
                return finding
                    .hint(format!(
                        "{file} is not open to this user: join the group that owns it, log in again"
                    ))
                    .commands(group.map(|group| format!("sudo usermod -aG {group} \"$USER\"")));
            }
            Err(_) if host::is_container() => {
                return finding.hint(format!("{file} cannot be opened; {}", host::START_CONTAINER));
            }
            Err(_) => {
                return finding
                    .hint(format!("{file} cannot be opened: load the kernel module, which makes it"))
                    .command("sudo nvidia-modprobe -c 0 -u");
            }
        }
    }
    finding.hint("nvidia-smi may say more; a driver and library of different versions need a reboot")
}

/// The CUDA release that the driver supports at most; `None` where there is no driver.
pub fn supported_cuda() -> Option<i32> {
    Driver::open().ok()?.version().ok().map(|(major, _)| major)
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
