//! `gputrace devices`: the GPUs of this machine, idle ones too, and how they reach each other.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, ArgMatches, Command};
use gputrace_monitor::{
    CudaProperties, DeviceLink, GpuDeviceInfo, GpuMonitorError, GpuVendor, Inventory, MonitorConfig,
};
use serde_json::{Value, json};

use crate::cli::failure::Failure;
use crate::cli::talk::say;
use crate::cli::{exit_code, printable, stdout, variables};
use crate::machine::cuda_properties;

pub fn command() -> Command {
    Command::new("devices")
        .about("List the GPUs of this machine, what they can do, and how they reach each other")
        .after_help(
            "NVIDIA's devices are read by libnvidia-ml.so.1 and libcuda.so.1, AMD's and Intel's from /sys. The\n\
             exit code is 1 if no device can be read.",
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("For programs to read"))
}

pub fn child_command() -> Command {
    Command::new(cuda_properties::SUBCOMMAND).about("The CUDA driver's answer to devices").hide(true)
}

pub fn child_main(_: &ArgMatches) -> Result<u8, Failure> {
    stdout::print(cuda_properties::answer().as_bytes())?;
    Ok(exit_code::SUCCESS)
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let mut inventory = Inventory::read(&MonitorConfig::default());
    if inventory.devices.is_empty() {
        return Err(no_device(&inventory.problems));
    }
    let mut problems = shown_problems(&inventory);
    if inventory.devices.iter().any(|device| device.vendor == GpuVendor::Nvidia) {
        match cuda_properties::ask() {
            Ok(found) => add(&mut inventory.devices, &found),
            Err(why) => problems.push(format!("the CUDA driver's properties are not known: {why}")),
        }
    }
    let is_json = matches.get_flag("json");
    let text = if is_json { as_json(&inventory, &problems) } else { as_text(&inventory) };
    problems.iter().for_each(|problem| say(format_args!("gputrace: warning: {problem}")));
    stdout::print(text.as_bytes())?;
    Ok(exit_code::SUCCESS)
}

/// The problem to report where nothing can be read: one other than a missing driver, if there is any.
pub fn telling(problems: &[GpuMonitorError]) -> Option<&GpuMonitorError> {
    let has_driver = |problem: &&GpuMonitorError| !matches!(problem, GpuMonitorError::NoDriver(_));
    problems.iter().find(has_driver).or(problems.first())
}

/// Why nothing can be read.
pub fn no_device(problems: &[GpuMonitorError]) -> Failure {
    let Some(problem) = telling(problems) else {
        return Failure::new("no GPU was found");
    };
    let failure = Failure::new(format!("no GPU can be read: {problem}"));
    match problem.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// A vendor without a driver is no problem where another vendor's devices are.
pub fn shown_problems(inventory: &Inventory) -> Vec<String> {
    let shown = inventory.problems.iter().filter(|problem| !matches!(problem, GpuMonitorError::NoDriver(_)));
    shown.map(ToString::to_string).collect()
}

/// Matched by address: CUDA counts devices in another order.
fn add(devices: &mut [GpuDeviceInfo], found: &[CudaProperties]) {
    for device in devices {
        let is_it = |properties: &&CudaProperties| device.pci_bus_id.as_ref() == Some(&properties.pci_bus_id);
        device.cuda = found.iter().find(is_it).cloned();
    }
}

fn as_json(inventory: &Inventory, problems: &[String]) -> String {
    let device = |device: &GpuDeviceInfo| {
        let mut value = json!(device);
        if let (Some(link), Some(Value::Object(fields))) = (&device.link, value.get_mut("link")) {
            fields.insert("peak_bytes_per_sec".into(), json!(link.peak_bytes_per_sec()));
        }
        value
    };
    let devices: Vec<Value> = inventory.devices.iter().map(device).collect();
    format!("{:#}\n", json!({ "devices": devices, "links": inventory.links, "problems": problems }))
}

fn as_text(inventory: &Inventory) -> String {
    let mut text = String::new();
    for device in &inventory.devices {
        let _ = writeln!(text, "{}: {} ({})", device.index, printable::name(&device.name), device.vendor);
        let rows = rows(device).into_iter().chain(device.cuda.iter().flat_map(cuda_rows));
        for (name, value) in rows {
            let value = value.unwrap_or_else(|| "N/A".to_owned());
            let _ = writeln!(text, "   {name:<20} {}", printable::name(value));
        }
    }
    if !inventory.links.is_empty() {
        text.push_str("links between devices:\n");
        inventory.links.iter().for_each(|link| text.push_str(&link_line(link)));
    }
    text
}

type Row = (&'static str, Option<String>);

fn rows(device: &GpuDeviceInfo) -> Vec<Row> {
    let link = device.link.as_ref();
    let lanes =
        |generation: Option<u32>, width: Option<u32>| Some(format!("generation {} x{}", generation?, width?));
    let now = link.and_then(|link| lanes(link.generation, link.width));
    let most = link.and_then(|link| lanes(link.max_generation, link.max_width));
    let peak = link.and_then(gputrace_monitor::PcieLink::peak_bytes_per_sec);
    let peak = peak.map(|bytes| format!("{:.1} GB/s each way", bytes as f64 / 1e9));
    let clocks =
        [("graphics", device.max_graphics_mhz), ("SM", device.max_sm_mhz), ("memory", device.max_memory_mhz)];
    let watts = |watts: Option<f32>| watts.map(|watts| format!("{watts:.0} W"));
    vec![
        ("UUID", device.uuid.clone()),
        ("PCI bus id", device.pci_bus_id.clone()),
        ("NUMA node", device.numa_node.map(|node| node.to_string())),
        ("link now", now),
        ("link at most", joined([most, peak])),
        ("driver", device.driver_version.clone()),
        ("CUDA", device.cuda_version.map(|(major, minor)| format!("{major}.{minor}"))),
        ("compute capability", device.compute_capability.map(|(major, minor)| format!("{major}.{minor}"))),
        ("architecture", device.architecture.clone()),
        ("memory", device.vram_total.map(bytes)),
        ("memory bus", device.memory_bus_bits.map(|bits| format!("{bits} bits"))),
        ("ECC", device.ecc.map(on_off)),
        ("MIG", device.mig.map(on_off)),
        ("clocks at most", joined(clocks.map(|(name, mhz)| mhz.map(|mhz| format!("{name} {mhz} MHz"))))),
        ("power limit", watts(device.power_limit_watts)),
        ("power limit at most", watts(device.power_limit_max_watts)),
    ]
}

fn cuda_rows(cuda: &CudaProperties) -> Vec<Row> {
    let count = |value: Option<u32>, what: &str| value.map(|value| format!("{value} {what}"));
    let shared = |value: Option<u32>, what: &str| value.map(|value| format!("{}{what}", bytes(value.into())));
    let three = |value: Option<[u32; 3]>| value.map(|[x, y, z]| format!("{x} x {y} x {z}"));
    vec![
        ("multiprocessors", cuda.multiprocessors.map(|number| number.to_string())),
        (
            "a multiprocessor",
            joined([
                count(cuda.max_threads_per_multiprocessor, "threads"),
                count(cuda.max_blocks_per_multiprocessor, "blocks"),
                count(cuda.registers_per_multiprocessor, "registers"),
                shared(cuda.shared_bytes_per_multiprocessor, " shared memory"),
            ]),
        ),
        (
            "a block",
            joined([
                count(cuda.max_threads_per_block, "threads"),
                count(cuda.registers_per_block, "registers"),
                shared(cuda.shared_bytes_per_block, " shared memory"),
                shared(cuda.shared_bytes_per_block_opt_in, " on request"),
            ]),
        ),
        ("largest block", three(cuda.max_block)),
        ("largest grid", three(cuda.max_grid)),
        ("warp", count(cuda.warp_size, "threads")),
        ("L2 cache", cuda.l2_cache_bytes.map(|size| bytes(size.into()))),
        ("integrated", cuda.integrated.map(yes_no)),
        ("unified addressing", cuda.unified_addressing.map(yes_no)),
        ("managed memory", cuda.managed_memory.map(yes_no)),
        ("concurrent kernels", cuda.concurrent_kernels.map(yes_no)),
        ("copy engines", cuda.copy_engines.map(|number| number.to_string())),
    ]
}

fn link_line(link: &DeviceLink) -> String {
    let (one, other) = link.devices;
    // The word of the library's JSON.
    let path = link.path.and_then(|path| json!(path).as_str().map(str::to_owned));
    let nvlinks = link.nvlinks.map(|count| format!("{count} NVLink"));
    format!("   {one} - {other}   {}\n", joined([nvlinks, path]).unwrap_or_else(|| "N/A".to_owned()))
}

/// What of it is known, with commas between.
fn joined<const N: usize>(parts: [Option<String>; N]) -> Option<String> {
    let known: Vec<String> = parts.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(", "))
}

fn bytes(bytes: u64) -> String {
    let (divisor, unit) = match bytes {
        0..0x10_0000 => (1024.0, "KiB"),
        0x10_0000..0x4000_0000 => (1_048_576.0, "MiB"),
        _ => (1_073_741_824.0, "GiB"),
    };
    let number = format!("{:.1}", bytes as f64 / divisor);
    format!("{} {unit}", number.trim_end_matches(".0"))
}

fn on_off(is_on: bool) -> String {
    if is_on { "on" } else { "off" }.to_owned()
}

fn yes_no(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}
