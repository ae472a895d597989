//! What only the CUDA driver knows about devices, asked by a short-lived child.
//!
//! The driver's initialisation may hang or crash, and it takes memory on the host; the child keeps both away
//! from whoever asks.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gputrace_monitor::CudaProperties;

use crate::workload::driver::{Driver, DriverError};

/// The hidden subcommand that the child runs.
pub const SUBCOMMAND: &str = "cuda-properties";
/// Initialising a driver takes some seconds on a machine with many devices.
const LIMIT: Duration = Duration::from_secs(20);

/// The properties of all devices, also of those that CUDA_VISIBLE_DEVICES hides; or why there are none.
pub fn ask() -> Result<Vec<CudaProperties>, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut command = Command::new(program);
    command.arg(SUBCOMMAND).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("LD_PRELOAD").env("GPUTRACE", "off");
    let mut child = command.spawn().map_err(|error| format!("cannot start a child: {error}"))?;
    let answer = read(&mut child);
    if answer.is_none() {
        let _ = child.kill();
    }
    // A child that no signal ends (it sleeps inside the driver) is left to the system.
    let status = if answer.is_some() { child.wait().ok() } else { child.try_wait().ok().flatten() };
    let Some(answer) = answer else {
        return Err(format!("the CUDA driver did not answer within {} s", LIMIT.as_secs()));
    };
    match serde_json::from_str(&answer) {
        Ok(Answer::Properties(properties)) => Ok(properties),
        Ok(Answer::Error(why)) => Err(why),
        Err(_) => Err(format!(
            "the child that asked the CUDA driver ended without an answer ({})",
            status.map_or_else(|| "no status".to_owned(), |status| status.to_string())
        )),
    }
}

/// All that the child writes, unless it takes too long.
fn read(child: &mut Child) -> Option<String> {
    let mut from = child.stdout.take()?;
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("cuda-properties".into())
        .spawn(move || {
            let mut text = String::new();
            let _ = from.read_to_string(&mut text);
            // Nobody waits any more if this fails.
            let _ = sender.send(text);
        })
        .ok()?;
    receiver.recv_timeout(LIMIT).ok()
}

/// What the child writes, as JSON.
#[derive(serde::Serialize, serde::Deserialize)]
enum Answer {
    Properties(Vec<CudaProperties>),
    Error(String),
}

/// The child's answer, without a line end.
pub fn answer() -> String {
    let answer = read_here().map_or_else(|error| Answer::Error(error.to_string()), Answer::Properties);
    serde_json::to_string(&answer).unwrap_or_default()
}

fn read_here() -> Result<Vec<CudaProperties>, DriverError> {
    let driver = Driver::open()?;
    (0..driver.initialise()?).map(|ordinal| properties(&driver, driver.handle(ordinal)?)).collect()
}

/// By the numbers of `CUdevice_attribute`.
fn properties(driver: &Driver, device: i32) -> Result<CudaProperties, DriverError> {
    let value = |number| driver.attribute(device, number);
    let flag = |number| value(number).map(|value| value != 0);
    let three = |first| Some([value(first)?, value(first + 1)?, value(first + 2)?]);
    Ok(CudaProperties {
        pci_bus_id: driver.bus_id(device)?,
        multiprocessors: value(16),
        clock_khz: value(13),
        memory_clock_khz: value(36),
        memory_bus_bits: value(37),
        l2_cache_bytes: value(38),
        shared_bytes_per_block: value(8),
        shared_bytes_per_block_opt_in: value(97),
        shared_bytes_per_multiprocessor: value(81),
        registers_per_block: value(12),
        registers_per_multiprocessor: value(82),
        warp_size: value(10),
        max_threads_per_block: value(1),
        max_threads_per_multiprocessor: value(39),
        max_blocks_per_multiprocessor: value(106),
        max_block: three(2),
        max_grid: three(5),
        ecc: flag(32),
        integrated: flag(18),
        unified_addressing: flag(41),
        managed_memory: flag(83),
        concurrent_kernels: flag(31),
        copy_engines: value(40),
    })
}
