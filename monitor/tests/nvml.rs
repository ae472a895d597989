//! The library on a simulated NVML.

mod fake;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use fake::{DEVICE, Fake, sources};
use gputrace_monitor::{
    GpuBackend, GpuMetrics, GpuMonitor, GpuMonitorError, GpuVendor, Inventory, LinkPath, MonitorConfig,
    ProcessKind, ThrottleReasons,
};

/// A device that exists and reports nothing.
const BARE: &str = "[device]\n";

fn monitor(fake: &Fake) -> GpuMonitor {
    fake.inventory().monitor(0, &fake.config()).unwrap()
}

/// The first sample with what is read after a sample was delivered.
fn full_sample(monitor: &GpuMonitor) -> GpuMetrics {
    let begin = Instant::now();
    loop {
        let sample = monitor.collect().unwrap();
        if sample.errors.is_some() || begin.elapsed() > Duration::from_secs(10) {
            return sample;
        }
    }
}

#[test]
fn enumeration_gives_all_facts_of_a_device() {
    let inventory = Fake::new(DEVICE).inventory();
    assert_eq!(inventory.problems, []);
    let [device] = &inventory.devices[..] else { panic!("{inventory:?}") };
    assert_eq!((device.index, device.name.as_str()), (0, "Fake H100"));
    assert_eq!((device.vendor, device.backend), (GpuVendor::Nvidia, GpuBackend::Nvml));
    assert_eq!(device.vram_total, Some(80 << 30));
    assert_eq!(device.compute_capability, Some((9, 0)));
    assert_eq!(device.driver_version.as_deref(), Some("580.95.05"));
    assert_eq!(device.cuda_version, Some((13, 0)));
    assert_eq!(device.pci_bus_id.as_deref(), Some("0000:1b:00.0"));
    assert_eq!(device.uuid.as_deref(), Some("GPU-11111111-2222-3333-4444-555555555555"));
    assert_eq!(device.architecture.as_deref(), Some("Hopper"));
    let link = device.link.unwrap();
    assert_eq!(
        (link.generation, link.width, link.max_generation, link.max_width),
        (Some(4), Some(16), Some(5), Some(16))
    );
    assert_eq!((device.max_graphics_mhz, device.max_memory_mhz), (Some(1980), Some(2619)));
    assert_eq!((device.power_limit_watts, device.power_limit_max_watts), (Some(450.0), Some(700.0)));
    assert_eq!((device.ecc, device.mig, device.memory_bus_bits), (Some(true), Some(false), Some(5120)));
}

#[test]
fn enumeration_gives_all_devices_and_their_links() {
    let script = "[device]\nname = A\npci = 00000000:01:00.0\ntopology = 0 30 50\nnvlink = 1 1 - 1\n\
                  [device]\nname = B\npci = 00000000:02:00.0\ntopology = 30 0 50\nnvlink = 0 0 0\n\
                  [device]\nname = C\npci = 00000000:03:00.0\n";
    let inventory = Fake::new(script).inventory();
    let names: Vec<_> = inventory.devices.iter().map(|device| (device.index, device.name.as_str())).collect();
    assert_eq!(names, [(0, "A"), (1, "B"), (2, "C")]);
    let links: Vec<_> = inventory.links.iter().map(|link| (link.devices, link.path, link.nvlinks)).collect();
    let expected = [
        ((0, 1), Some(LinkPath::HostBridge), Some(3)),
        ((0, 2), Some(LinkPath::System), None),
        ((1, 2), Some(LinkPath::System), None),
    ];
    assert_eq!(links, expected);
}

#[test]
fn sample_has_every_value() {
    let fake = Fake::new(DEVICE);
    let sample = full_sample(&monitor(&fake));
    let use_ = &sample.utilization;
    assert_eq!((use_.gpu_percent, use_.memory_percent), (Some(78), Some(62)));
    assert_eq!((use_.encoder_percent, use_.decoder_percent), (Some(3), Some(4)));
    let memory = &sample.memory;
    assert_eq!((memory.total, memory.used), (Some(80 << 30), Some(18 << 30)));
    assert_eq!((memory.free, memory.reserved), (Some(61 << 30), Some(1 << 30)));
    assert_eq!(memory.allocations, None);
    let thermal = sample.thermal.unwrap();
    assert_eq!((thermal.temperature_celsius, thermal.memory_temperature_celsius), (Some(67), Some(71)));
    assert_eq!(
        (thermal.temperature_threshold_shutdown, thermal.temperature_threshold_slowdown),
        (Some(95), Some(90))
    );
    assert_eq!(thermal.fan_speed_percent, Some(50), "the faster of two");
    let power = sample.power.unwrap();
    assert_eq!((power.power_draw_watts, power.power_limit_watts), (Some(287.5), Some(450.0)));
    assert_eq!((power.power_state, power.energy_joules), (Some(2), Some(123_456.789)));
    let clocks = sample.clocks.unwrap();
    assert_eq!((clocks.graphics_mhz, clocks.sm_mhz), (Some(1980), Some(1965)));
    assert_eq!((clocks.memory_mhz, clocks.video_mhz), (Some(2619), Some(1500)));
    let pcie = sample.pcie.unwrap();
    assert_eq!((pcie.tx_bytes_per_sec, pcie.rx_bytes_per_sec), (Some(12_400_000_000), Some(8_700_000_000)));
    assert_eq!((pcie.link_gen, pcie.link_width), (Some(4), Some(16)));
    assert_eq!((pcie.max_link_gen, pcie.max_link_width, pcie.replays), (Some(5), Some(16), Some(3)));
    let throttle = sample.throttle.unwrap();
    assert_eq!(throttle.reasons.unwrap().names(), ["power cap", "thermal, by hardware"]);
    assert_eq!((throttle.power_ns, throttle.thermal_ns), (Some(5000), Some(7000)));
    let errors = sample.errors.unwrap();
    assert_eq!((errors.ecc_corrected, errors.ecc_uncorrected), (Some(2), Some(1)));
    assert_eq!((errors.remapped_rows_corrected, errors.remapped_rows_uncorrected), (Some(4), Some(5)));
    assert_eq!((errors.remapping_failed, errors.xid_count, errors.xid_last), (Some(true), Some(0), None));
    assert_eq!(sample.processes.as_deref(), Some(&[][..]));
    assert!(sample.problem.is_none());
}

#[test]
fn missing_values_are_none_and_no_error() {
    let fake = Fake::new(BARE);
    let inventory = fake.inventory();
    let device = &inventory.devices[0];
    assert_eq!(
        (device.vram_total, device.driver_version.as_ref(), device.pci_bus_id.as_ref()),
        (None, None, None)
    );
    let sample = monitor(&fake).collect().unwrap();
    assert_eq!((sample.utilization.gpu_percent, sample.memory.used), (None, None));
    assert!(sample.thermal.is_none() && sample.power.is_none() && sample.clocks.is_none());
    assert!(sample.pcie.is_none() && sample.throttle.is_none() && sample.errors.is_none());
}

/// A driver that lacks functions, and one whose library does not even have their names.
#[test]
fn missing_functions_leave_their_values_only() {
    let faults = "missing nvmlDeviceGetMemoryInfo_v2\nmissing nvmlDeviceGetTotalEnergyConsumption\n";
    let names = [
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    ];
    for fake in [Fake::new(&format!("{DEVICE}{faults}")), Fake::changed(DEVICE, &names)] {
        let sample = monitor(&fake).collect().unwrap();
        // The older function counts what is reserved as used.
        assert_eq!((sample.memory.used, sample.memory.reserved), (Some(19 << 30), None));
        let power = sample.power.unwrap();
        assert_eq!((power.energy_joules, power.power_draw_watts), (None, Some(287.5)));
        assert!(sample.processes.is_some());
    }
}

#[test]
fn garbage_is_not_shown_as_a_value() {
    let all = u64::from(u32::MAX);
    let script = format!(
        "cuda = 7\n{BARE}gpu = 4000\nmem = {all}\ntotal = 1GiB\nused = 2GiB\ntemp = {all}\npower = {all}\n\
         graphics = {all}\nsm = 1500\npstate = 32\ngen = 0\nwidth = 999\npci = nonsense\n"
    );
    let fake = Fake::new(&script);
    let inventory = fake.inventory();
    let device = &inventory.devices[0];
    assert_eq!((device.cuda_version, device.pci_bus_id.as_ref()), (None, None));
    let sample = monitor(&fake).collect().unwrap();
    assert_eq!((sample.utilization.gpu_percent, sample.utilization.memory_percent), (None, None));
    assert_eq!((sample.memory.total, sample.memory.used, sample.memory.free), (Some(1 << 30), None, None));
    assert!(sample.thermal.is_none() && sample.power.is_none() && sample.pcie.is_none());
    let clocks = sample.clocks.unwrap();
    assert_eq!((clocks.graphics_mhz, clocks.sm_mhz), (None, Some(1500)));
}

#[test]
fn absurd_count_of_devices_is_no_driver_s_answer() {
    let inventory = Fake::new("count = 4294967295\n").inventory();
    assert!(inventory.devices.is_empty());
    assert!(matches!(&inventory.problems[..], [GpuMonitorError::BadLibrary(_)]), "{:?}", inventory.problems);
}

#[test]
fn initialisation_errors_are_distinguished() {
    type Test = fn(&GpuMonitorError) -> bool;
    let cases: [(u32, Test); 4] = [
        (9, |error| matches!(error, GpuMonitorError::NoDriver(_))),
        (4, |error| matches!(error, GpuMonitorError::NoPermission(_))),
        (18, |error| matches!(error, GpuMonitorError::VersionMismatch(_))),
        (999, |error| matches!(error, GpuMonitorError::Driver { .. })),
    ];
    for (code, is_expected) in cases {
        let inventory = Fake::new(&format!("fail nvmlInit_v2 = {code}\n")).inventory();
        assert!(
            matches!(&inventory.problems[..], [error] if is_expected(error)),
            "{code}: {:?}",
            inventory.problems
        );
    }
}

#[test]
fn library_that_is_none_is_not_a_missing_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libnvidia-ml.so.1");
    let problem = || {
        let config = MonitorConfig { sources: sources(&path, folder.path()), ..MonitorConfig::default() };
        GpuMonitor::with_config(0, &config).unwrap_err()
    };
    assert!(matches!(problem(), GpuMonitorError::NoDriver(_)), "{:?}", problem());
    std::fs::write(&path, "no library").unwrap();
    assert!(matches!(problem(), GpuMonitorError::BadLibrary(_)), "{:?}", problem());
    let without = Fake::changed(DEVICE, &["nvmlInit_v2"]);
    let problems = without.inventory().problems;
    assert!(
        matches!(&problems[..], [GpuMonitorError::BadLibrary(why)] if why.ends_with("no nvmlInit_v2")),
        "{problems:?}"
    );
}

#[test]
fn device_that_cannot_be_opened_keeps_its_index() {
    let script =
        "[device]\nname = A\n[device]\nname = B\nlost @ 0s..\n[device]\nname = C\ngpu = 7\nmem = 1\n";
    let fake = Fake::new(script);
    let inventory = fake.inventory();
    let names: Vec<_> = inventory.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["A", "unknown", "C"]);
    assert!(matches!(&inventory.problems[..], [GpuMonitorError::DeviceLost { index: 1, .. }]));
    let third = inventory.monitor(2, &fake.config()).unwrap();
    assert_eq!(third.collect().unwrap().utilization.gpu_percent, Some(7));
    let none = inventory.monitor(3, &fake.config()).unwrap_err();
    assert_eq!(none.to_string(), "there is no device 3; there are 3");
}

#[test]
fn lost_device_is_an_error_and_comes_back() {
    let fake = Fake::new(&format!("{DEVICE}lost @ 400ms..800ms\n"));
    let (sender, samples) = mpsc::channel();
    let monitor = monitor(&fake);
    let handle = monitor.start_background(Duration::from_millis(50), move |sample| drop(sender.send(sample)));
    let mut states: Vec<bool> = Vec::new();
    let begin = Instant::now();
    while states != [true, false, true] && begin.elapsed() < Duration::from_secs(20) {
        let sample = samples.recv_timeout(Duration::from_secs(10)).unwrap();
        let is_good = sample.problem.is_none();
        if let Some(problem) = &sample.problem {
            assert!(matches!(problem, GpuMonitorError::DeviceLost { index: 0, .. }), "{problem}");
            assert!(sample.memory.used.is_none() && sample.thermal.is_none(), "nothing old is shown");
        }
        if states.last() != Some(&is_good) {
            states.push(is_good);
        }
    }
    handle.stop();
    assert_eq!(states, [true, false, true]);
}

#[test]
fn hanging_call_stops_its_own_device_only_and_is_reported() {
    let script = format!("{DEVICE}hang nvmlDeviceGetPowerUsage\n[device]\nname = Other\ngpu = 5\nmem = 6\n");
    let fake = Fake::new(&script);
    let config = MonitorConfig { answer_limit: Duration::from_millis(300), ..fake.config() };
    let inventory = fake.inventory();
    let (hung, other) = (inventory.monitor(0, &config).unwrap(), inventory.monitor(1, &config).unwrap());
    let (sender, samples) = mpsc::channel();
    let handle = hung.start_background(Duration::from_millis(20), move |sample| drop(sender.send(sample)));
    let sample = samples.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(matches!(sample.problem, Some(GpuMonitorError::NoAnswer { .. })), "{:?}", sample.problem);
    let error = hung.collect().unwrap_err();
    assert!(error.to_string().starts_with("the driver does not answer for device 0"), "{error}");
    // The second answer comes at once: nobody waits for a thread that is known to hang.
    let begin = Instant::now();
    hung.collect().unwrap_err();
    assert!(begin.elapsed() < Duration::from_millis(250), "{:?}", begin.elapsed());
    assert_eq!(other.collect().unwrap().utilization.gpu_percent, Some(5));
    handle.stop();
}

#[test]
fn slow_call_stops_no_other_device_in_the_background() {
    let slow = "slow nvmlDeviceGetPowerUsage = 1200ms @ 300ms..1s\n";
    let fake = Fake::new(&format!("{DEVICE}{slow}[device]\nname = Other\ngpu = 5\nmem = 6\n"));
    let inventory = fake.inventory();
    let monitors = [0, 1].map(|index| inventory.monitor(index, &fake.config()).unwrap());
    let (sender, samples) = mpsc::channel();
    let _handles = [0, 1].map(|index| {
        let sender = sender.clone();
        monitors[index].start_background(Duration::from_millis(20), move |sample| {
            drop(sender.send((index, Instant::now(), sample.problem)))
        })
    });
    let (begin, mut times) = (Instant::now(), [Vec::new(), Vec::new()]);
    while begin.elapsed() < Duration::from_secs(3) {
        let Ok((index, at, problem)) = samples.recv_timeout(Duration::from_secs(10)) else { break };
        assert_eq!(problem, None);
        times[index].push(at);
    }
    let gap = |index: usize| times[index].windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(gap(0) > Duration::from_millis(900), "{:?}", gap(0));
    // Until the rounds are another thread's.
    assert!(gap(1) < Duration::from_millis(800), "{:?}", gap(1));
    // The slow one is read again.
    assert!(times[0].last().unwrap().duration_since(begin) > Duration::from_secs(2));
}

#[test]
fn device_that_hangs_while_it_is_listed_leaves_the_others() {
    let script = "[device]\nname = A\nhang nvmlDeviceGetUUID\n[device]\nname = B\ngpu = 7\nmem = 1\n";
    let fake = Fake::new(script);
    let config = MonitorConfig { start_limit: Duration::from_millis(600), ..fake.config() };
    let inventory = Inventory::read(&config);
    let names: Vec<_> = inventory.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["unknown", "B"]);
    let [GpuMonitorError::NoAnswer { subject, .. }] = &inventory.problems[..] else {
        panic!("{inventory:?}")
    };
    assert_eq!(subject, "device 0");
    let other = inventory.monitor(1, &config).unwrap();
    assert_eq!(other.collect().unwrap().utilization.gpu_percent, Some(7));
}

#[test]
fn device_that_is_lost_at_the_start_is_read_once_it_is_back() {
    let fake = Fake::new(&format!("{DEVICE}lost @ 0s..300ms\n"));
    let monitor = monitor(&fake);
    assert!(matches!(monitor.collect(), Err(GpuMonitorError::DeviceLost { index: 0, .. })));
    let begin = Instant::now();
    while monitor.collect().is_err() && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(monitor.collect().unwrap().utilization.gpu_percent, Some(78));
}

#[test]
fn driver_that_hangs_at_the_start_is_reported() {
    let fake = Fake::new("hang nvmlInit_v2\n");
    let config = MonitorConfig { start_limit: Duration::from_millis(200), ..fake.config() };
    let problems = Inventory::read(&config).problems;
    assert!(matches!(&problems[..], [GpuMonitorError::NoAnswer { .. }]), "{problems:?}");
}

/// The ages of the memory in the samples of half a second, one each 10 ms, after the first twenty.
fn ages_of_memory(monitor: &GpuMonitor) -> Vec<Duration> {
    let (sender, samples) = mpsc::channel();
    let handle = monitor.start_background(Duration::from_millis(10), move |sample| {
        let _ = sender.send(sample.memory.age.unwrap());
    });
    let ages = samples.iter().skip(20).take(50).collect();
    handle.stop();
    ages
}

#[test]
fn memory_is_read_with_each_sample_while_it_changes_and_seldom_otherwise() {
    let hour = Duration::from_secs(3600);
    let changing = DEVICE.replace("used = 18GiB", "used = 0..80000000000/3600s");
    assert_ne!(changing, DEVICE);
    let fake = Fake::new(&changing);
    let ages = ages_of_memory(&fake.inventory().monitor(0, &config_at(&fake, hour)).unwrap());
    let fresh = ages.iter().filter(|age| **age < Duration::from_millis(10)).count();
    assert!(fresh > 40, "it changes all the time: {ages:?}");

    let fake = Fake::new(DEVICE);
    let steady = fake.inventory().monitor(0, &config_at(&fake, hour)).unwrap();
    let ages = ages_of_memory(&steady);
    assert!(ages.is_sorted() && ages[49] > Duration::from_millis(300), "it was not read again: {ages:?}");
    // Who asks gets what holds now.
    let begin = Instant::now();
    let age = steady.collect().unwrap().memory.age.unwrap();
    assert!(age <= begin.elapsed(), "{age:?}");

    let steady = fake.inventory().monitor(0, &config_at(&fake, Duration::from_millis(100))).unwrap();
    let ages = ages_of_memory(&steady);
    let readings = 1 + ages.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!((2..=8).contains(&readings), "five in half a second: {ages:?}");
}

#[test]
fn reasons_are_read_again_when_the_clock_changes() {
    let script = DEVICE.replace("sm = 1965\n", "sm = 1965\nsm = 1200 @ 1s..\n");
    let script = script.replace("reasons = 0x44\n", "reasons = 0\nreasons = 0x4 @ 1s..\n");
    let fake = Fake::new(&script);
    let monitor = fake.inventory().monitor(0, &config_at(&fake, Duration::from_secs(3600))).unwrap();
    let (sender, samples) = mpsc::channel();
    let _handle = monitor.start_background(Duration::from_millis(10), move |sample: GpuMetrics| {
        let _ = sender.send((sample.clocks.unwrap().sm_mhz.unwrap(), sample.throttle.unwrap().reasons));
    });
    let lowered = samples.iter().find(|(mhz, _)| *mhz == 1200).unwrap();
    assert_eq!(lowered.1, Some(ThrottleReasons::POWER_CAP));
}

#[test]
fn samples_that_repeat_the_last_one_are_left_out_where_only_changes_are_wanted() {
    let count = |script: &str| {
        let fake = Fake::new(script);
        let every = Duration::from_millis(200);
        let config = MonitorConfig {
            load_interval: every,
            clock_interval: every,
            process_interval: every,
            slow_interval: None,
            ..config_at(&fake, every)
        };
        let monitor = fake.inventory().monitor(0, &config).unwrap();
        let (sender, samples) = mpsc::channel();
        let handle = monitor.start_changes(Duration::from_millis(10), move |sample| {
            let _ = sender.send(sample);
        });
        std::thread::sleep(Duration::from_secs(1));
        handle.stop();
        samples.iter().count()
    };
    // Some more at first, to find out that nothing changes.
    let steady = count(DEVICE);
    assert!((5..=25).contains(&steady), "{steady} for five a second");
    let changing = count(&DEVICE.replace("sm = 1965", "sm = 0..100000/100s"));
    assert!(changing > 30, "{changing} for a hundred, since the clock changes all the time");
}

/// Whatever does not change is read that seldom.
fn config_at(fake: &Fake, sensor_interval: Duration) -> MonitorConfig {
    MonitorConfig { sensor_interval, ..fake.config() }
}

#[test]
fn slow_query_has_a_pace_of_its_own_and_an_age() {
    let fake = Fake::new(&format!("{DEVICE}slow nvmlDeviceGetPcieThroughput = 100ms\n"));
    let config = MonitorConfig { slow_interval: Some(Duration::from_secs(3600)), ..fake.config() };
    let monitor = fake.inventory().monitor(0, &config).unwrap();
    // The first sample does not wait for it.
    assert!(monitor.collect().unwrap().pcie.is_some_and(|pcie| pcie.tx_bytes_per_sec.is_none()));
    let age = |sample: GpuMetrics| sample.pcie.unwrap().throughput_age.unwrap();
    let first = age(full_sample(&monitor));
    std::thread::sleep(Duration::from_millis(50));
    assert!(age(monitor.collect().unwrap()) >= first + Duration::from_millis(50));
    let never = MonitorConfig { slow_interval: None, ..fake.config() };
    let monitor = fake.inventory().monitor(0, &never).unwrap();
    for _ in 0..3 {
        assert_eq!(monitor.collect().unwrap().pcie.unwrap().throughput_age, None);
    }
}

#[test]
fn processes_have_memory_and_utilisation() {
    let own = std::process::id();
    let script = format!(
        "{BARE}gpu = 1\nmem = 1\nprocess = {own} 512MiB sm=30 mem=4\nprocess = 4000001 ? sm=500\n\
         process = {own} 1MiB graphics\nprocess = 4000002 1GiB graphics\n"
    );
    let fake = Fake::new(&script);
    let processes = monitor(&fake).collect().unwrap().processes.unwrap();
    let pids: Vec<_> = processes.iter().map(|process| (process.pid, process.kind)).collect();
    let expected =
        [(4_000_002, ProcessKind::Graphics), (own, ProcessKind::Both), (4_000_001, ProcessKind::Compute)];
    assert_eq!(pids, expected, "those with most memory first");
    let ours = &processes[1];
    assert_eq!((ours.memory, ours.gpu_percent, ours.memory_percent), (Some(512 << 20), Some(30), Some(4)));
    assert_eq!(ours.is_host_pid, ours.name.is_none(), "a name is looked up on the host only");
    assert_eq!((processes[2].memory, processes[2].gpu_percent), (None, None), "500 % is garbage");
}

#[test]
fn xid_errors_are_counted_from_the_start() {
    let fake = Fake::new(&format!("{DEVICE}xid = 79 at 0s\nxid = 31 at 0s\nxid = 13 at 3600s\n"));
    let errors = full_sample(&monitor(&fake)).errors.unwrap();
    assert_eq!((errors.xid_count, errors.xid_last), (Some(2), Some(31)));
}

#[test]
fn background_collection_fills_the_history() {
    let fake = Fake::new(DEVICE);
    let config = MonitorConfig {
        poll_interval: Duration::from_millis(2),
        history_size: 5,
        background_collection: true,
        ..fake.config()
    };
    let monitor = fake.inventory().monitor(0, &config).unwrap();
    let begin = Instant::now();
    while monitor.history(Duration::from_secs(60)).len() < 5 && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let history = monitor.history(Duration::from_secs(60));
    assert_eq!(history.len(), 5);
    assert!(history.windows(2).all(|pair| pair[0].timestamp < pair[1].timestamp));
    // What is asked for besides does not crowd it.
    let asked = monitor.collect().unwrap().timestamp;
    assert!(monitor.history(Duration::from_secs(60)).iter().all(|sample| sample.timestamp != asked));
}

#[test]
fn stopped_collection_calls_nobody_any_more() {
    let fake = Fake::new(DEVICE);
    let monitor = monitor(&fake);
    let (sender, samples) = mpsc::channel();
    let handle = monitor.start_background(Duration::from_millis(1), move |sample| drop(sender.send(sample)));
    samples.recv_timeout(Duration::from_secs(10)).unwrap();
    handle.stop();
    samples.try_iter().count();
    std::thread::sleep(Duration::from_millis(30));
    assert!(samples.try_recv().is_err());
    // Without a background of its own the monitor keeps what others ask for.
    assert!(!monitor.history(Duration::from_secs(60)).is_empty());
    assert_eq!(monitor.collect().unwrap().throttle.unwrap().reasons, Some(ThrottleReasons(0x44)));
}
