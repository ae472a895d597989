//! What reading costs on the simulated NVML, which answers at once: our own part of a sample's time, and the
//! processor time of eight devices at ten samples a second, and what an hour of samples leaves behind.
//! `cargo bench -p gputrace-monitor`.

#[path = "../tests/fake/mod.rs"]
mod fake;

use std::time::{Duration, Instant};

use fake::{DEVICE, Fake};
use gputrace_monitor::MonitorConfig;

const DEVICES: u32 = 8;
const SAMPLES: usize = 2000;
const SECONDS: u64 = 20;
const BARE_WAKES: u32 = 50;
/// Samples in the history of each device.
const KEPT: usize = 30;
/// Ten a second.
const HOUR: usize = 36_000;

fn main() {
    let (system, device) = DEVICE.split_once("[device]\n").unwrap();
    let devices: String = (0..DEVICES)
        .map(|number| {
            format!("[device]\n{device}")
                .replace("1B:00.0", &format!("{number:02}:00.0"))
                .replace("GPU-1", &format!("GPU-{number}"))
        })
        .collect();
    let fake = Fake::new(&format!("{system}{devices}"));
    let config = MonitorConfig {
        background_collection: false,
        sources: fake.config().sources,
        ..MonitorConfig::default()
    };
    let inventory = fake.inventory();
    assert_eq!(inventory.devices.len() as u32, DEVICES, "{:?}", inventory.problems);

    let monitor = inventory.monitor(0, &config).unwrap();
    let mut times: Vec<Duration> = (0..SAMPLES)
        .map(|_| {
            let begin = Instant::now();
            monitor.collect().unwrap();
            begin.elapsed()
        })
        .collect();
    times.sort();
    println!("a sample, asked for: median {:?}, p99 {:?}", times[SAMPLES / 2], times[SAMPLES * 99 / 100]);
    drop(monitor);

    // Everything is read with each sample.
    let hour =
        inventory.monitor(0, &MonitorConfig { sources: config.sources.clone(), ..fake.config() }).unwrap();
    let take = |count| (0..count).for_each(|_| drop(hour.collect().unwrap()));
    take(HOUR / 10);
    let before = held();
    take(HOUR);
    let after = held();
    println!(
        "an hour of samples: {} KiB and {} descriptors more than before",
        after.0.cast_signed() - before.0.cast_signed(),
        after.1.cast_signed() - before.1.cast_signed()
    );
    drop(hour);

    // What any thread costs here that wakes up as often: on a virtual machine half of the whole.
    let before = processor_time();
    (0..BARE_WAKES).for_each(|_| std::thread::sleep(config.poll_interval));
    let bare = (processor_time() - before).as_secs_f64() / f64::from(BARE_WAKES);
    println!(
        "a thread that wakes up each 100 ms and does nothing: {:.3} % of one core",
        bare / config.poll_interval.as_secs_f64() * 100.0
    );

    // Of a size that is reached before the measurement: the first samples also take the memory of their ring.
    let background = MonitorConfig { background_collection: true, history_size: KEPT, ..config };
    let monitors: Vec<_> = (0..DEVICES).map(|index| inventory.monitor(index, &background).unwrap()).collect();
    std::thread::sleep(background.poll_interval * (KEPT as u32 + 10));
    let (begin, before) = (Instant::now(), processor_time());
    std::thread::sleep(Duration::from_secs(SECONDS));
    let used = processor_time() - before;
    let missed: u64 = monitors.iter().map(gputrace_monitor::GpuMonitor::missed_samples).sum();
    let part = used.as_secs_f64() / begin.elapsed().as_secs_f64() * 100.0;
    println!("{DEVICES} devices each 100 ms: {part:.3} % of one core, {missed} samples missed");
}

/// Resident memory in KiB, and open descriptors.
fn held() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib = resident.split_whitespace().next().unwrap().parse().unwrap();
    (kib, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

/// Of all threads of this process.
fn processor_time() -> Duration {
    // SAFETY: all zero bytes are a valid rusage, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |value: libc::timeval| Duration::new(value.tv_sec as u64, value.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
