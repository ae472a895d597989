//! The simulated NVML, under `gputrace` in place of the machine's.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::tool::{gputrace, simulated_folder};

/// Where cargo leaves the library, since these tests depend on it.
pub fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libnvidia_ml.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// `gputrace` on the devices of a script, with the simulated CUDA driver and no other devices. The folder
/// holds the script.
pub fn gputrace_with(script: &str, folder: &Folder) -> Command {
    let path = folder.join("nvml.script");
    std::fs::write(&path, script).unwrap();
    let mut command = gputrace();
    command.env("GPUTRACE_NVML", library()).env("GPUTRACE_SIM_NVML", path);
    command.env("GPUTRACE_SYSFS", folder.path()).env("LD_LIBRARY_PATH", simulated_folder());
    command
}

/// One device, with the address that the simulated CUDA driver's first one has.
pub const DEVICE: &str = "\
driver = 580.95.05
cuda = 13000
[device]
name = Fake H100
uuid = GPU-1
pci = 00000000:10:00.0
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
shutdown = 95
fan = 45
power = 287500
limit = 450000
limit_min = 200000
limit_max = 700000
pstate = 2
energy = 123456789
graphics = 1980
sm = 1965
memclock = 2619
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
reasons = 0x4
power_violation = 5000000
ecc = 1
mig = 0
ecc_corrected = 2
ecc_uncorrected = 1
xid = 79 at 0s
process = 4000001 512MiB sm=30 mem=4
";
