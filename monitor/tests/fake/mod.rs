//! A simulated NVML of a test's own: a copy of the library, with its script beside it.
//!
//! Each copy is loaded by itself, so tests with different scripts run in one process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gputrace_monitor::{Inventory, MonitorConfig, Sources};

/// The folder lives as long as this; the library stays loaded.
pub struct Fake {
    folder: tempfile::TempDir,
}

/// Where cargo leaves the library, since this test depends on it.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libnvidia_ml.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

impl Fake {
    pub fn new(script: &str) -> Fake {
        Fake::changed(script, &[])
    }

    /// Without those functions: their names are changed in the copy, so that they are not found.
    pub fn changed(script: &str, absent: &[&str]) -> Fake {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = std::fs::read(built()).unwrap();
        for name in absent {
            let name = [b"\0", name.as_bytes(), b"\0"].concat();
            let at: Vec<_> =
                (0..bytes.len() - name.len()).filter(|at| bytes[*at..].starts_with(&name)).collect();
            assert!(!at.is_empty());
            at.into_iter().for_each(|at| bytes[at + 1] = b'x');
        }
        std::fs::write(folder.path().join("libnvidia-ml.so.1"), bytes).unwrap();
        std::fs::write(folder.path().join("libnvidia-ml.so.1.script"), script).unwrap();
        Fake { folder }
    }

    pub fn library(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    /// Only this library, no background collection, and limits that suit a test.
    pub fn config(&self) -> MonitorConfig {
        MonitorConfig {
            background_collection: false,
            answer_limit: Duration::from_secs(5),
            load_interval: Duration::from_millis(1),
            counters_interval: Duration::from_millis(1),
            process_interval: Duration::from_millis(1),
            sensor_interval: Duration::from_millis(1),
            slow_interval: Some(Duration::from_millis(1)),
            sources: sources(&self.library(), self.folder.path()),
            ..MonitorConfig::default()
        }
    }

    pub fn inventory(&self) -> Inventory {
        Inventory::read(&self.config())
    }
}

/// NVML from there, and a `/sys` with nothing in it.
pub fn sources(nvml: &Path, sysfs: &Path) -> Sources {
    Sources { nvml: Some(nvml.to_owned()), sysfs: sysfs.to_owned(), proc: "/proc".into() }
}

/// A device with everything.
pub const DEVICE: &str = "\
driver = 580.95.05
cuda = 13000
[device]
name = Fake H100
uuid = GPU-11111111-2222-3333-4444-555555555555
pci = 00000000:1B:00.0
architecture = 9
major = 9
minor_version = 0
gpu = 78
mem = 62
encoder = 3
decoder = 4
period_us = 100000
total = 80GiB
used = 18GiB
reserved = 1GiB
temp = 67
memory_temp = 71
shutdown = 95
slowdown = 90
fans = 2
fan = 45
fan1 = 50
power = 287500
limit = 450000
limit_min = 200000
limit_max = 700000
pstate = 2
energy = 123456789
graphics = 1980
sm = 1965
memclock = 2619
video = 1500
max_graphics = 1980
max_sm = 1980
max_memclock = 2619
bus_bits = 5120
tx = 12400000
rx = 8700000
gen = 4
width = 16
max_gen = 5
max_width = 16
replays = 3
reasons = 0x44
power_violation = 5000
thermal_violation = 7000
ecc = 1
mig = 0
ecc_corrected = 2
ecc_uncorrected = 1
rows_corrected = 4
rows_uncorrected = 5
rows_pending = 0
rows_failed = 1
";
