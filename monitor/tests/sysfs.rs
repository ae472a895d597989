//! AMD's and Intel's devices, from trees of files as the kernel's documentation describes them. No real card
//! has been read.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gputrace_monitor::{
    GpuBackend, GpuMetrics, GpuMonitor, GpuMonitorError, GpuVendor, Inventory, MonitorConfig, Sources,
    ThrottleReasons,
};

/// A `/sys` and a `/proc`.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        fs::create_dir(tree.path("proc")).unwrap();
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Each file as `path = text`, below that folder.
    fn write(&self, folder: &str, files: &str) {
        for (path, text) in files.lines().filter_map(|line| line.split_once(" = ")) {
            let path = self.path(folder).join(path.trim());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.replace("\\n", "\n").replace("\\t", "\t") + "\n").unwrap();
        }
    }

    fn card(&self, number: u32, driver: &str, address: &str, files: &str) {
        let card = format!("sys/class/drm/card{number}");
        self.write(&card, &format!("device/uevent = DRIVER={driver}\\nPCI_SLOT_NAME={address}\n{files}"));
        symlink(format!("../../../bus/pci/drivers/{driver}"), self.path(&card).join("device/driver"))
            .unwrap();
    }

    /// A process with a card open, on two descriptors of one client.
    fn process(&self, pid: u32, statistics: &str) {
        let process = format!("proc/{pid}");
        self.write(&process, "status = Name:\\tblender\\nUid:\\t0\\t0\\t0\\t0\\nNSpid:\\t1234");
        fs::create_dir_all(self.path(&process).join("fd")).unwrap();
        for descriptor in ["5", "6"] {
            let link = self.path(&process).join("fd").join(descriptor);
            let _ = symlink("/dev/dri/renderD128", link);
            self.write(&process, &format!("fdinfo/{descriptor} = {statistics}"));
        }
    }

    fn config(&self) -> MonitorConfig {
        MonitorConfig {
            background_collection: false,
            sensor_interval: Duration::from_millis(1),
            slow_interval: Some(Duration::from_millis(1)),
            sources: Sources {
                nvml: Some(Path::new("/nonexistent/libnvidia-ml.so.1").into()),
                sysfs: self.path("sys"),
                proc: self.path("proc"),
            },
            ..MonitorConfig::default()
        }
    }

    fn monitor(&self, index: u32) -> GpuMonitor {
        Inventory::read(&self.config()).monitor(index, &self.config()).unwrap()
    }
}

const AMDGPU: &str = "\
device/vendor = 0x1002
device/device = 0x744c
device/unique_id = 5bb4d8a1c6f1e0aa
device/gpu_busy_percent = 42
device/mem_busy_percent = 17
device/mem_info_vram_total = 25753026560
device/mem_info_vram_used = 1073741824
device/pp_dpm_sclk = 0: 500Mhz\\n1: 2371Mhz *\\n2: 2575Mhz
device/pp_dpm_mclk = 0: 96Mhz *\\n1: 1249Mhz
device/current_link_speed = 16.0 GT/s PCIe
device/current_link_width = 16
device/max_link_speed = 16.0 GT/s PCIe
device/max_link_width = 16
device/hwmon/hwmon3/name = amdgpu
device/hwmon/hwmon3/temp1_input = 54000
device/hwmon/hwmon3/temp1_label = edge
device/hwmon/hwmon3/temp1_crit = 100000
device/hwmon/hwmon3/temp1_emergency = 105000
device/hwmon/hwmon3/temp2_input = 61000
device/hwmon/hwmon3/temp2_label = junction
device/hwmon/hwmon3/temp3_input = 68000
device/hwmon/hwmon3/temp3_label = mem
device/hwmon/hwmon3/power1_average = 187500000
device/hwmon/hwmon3/power1_cap = 327000000
device/hwmon/hwmon3/power1_cap_max = 376000000
device/hwmon/hwmon3/pwm1 = 102
device/hwmon/hwmon3/freq1_input = 2371000000
";

const XE: &str = "\
device/vendor = 0x8086
device/device = 0xe20b
device/tile0/physical_vram_size_bytes = 12884901888
device/tile0/gt0/freq0/act_freq = 2850
device/tile0/gt0/freq0/rp0_freq = 2900
device/tile0/gt0/freq0/throttle/reason_pl1 = 1
device/tile0/gt0/freq0/throttle/reason_thermal = 0
device/hwmon/hwmon4/name = xe
device/hwmon/hwmon4/temp2_input = 48000
device/hwmon/hwmon4/temp2_label = pkg
device/hwmon/hwmon4/temp3_input = 56000
device/hwmon/hwmon4/temp3_label = vram
device/hwmon/hwmon4/power1_cap = 190000000
device/hwmon/hwmon4/energy1_input = 5000000
";

const I915: &str = "\
device/vendor = 0x8086
device/device = 0x9a49
gt_act_freq_mhz = 1300
gt_RP0_freq_mhz = 1350
gt/gt0/throttle_reason_pl1 = 0
gt/gt0/throttle_reason_prochot = 1
";

/// The first sample with what is read after a sample, which the processes are.
fn full_sample(monitor: &GpuMonitor) -> GpuMetrics {
    let begin = Instant::now();
    loop {
        let sample = monitor.collect().unwrap();
        if sample.processes.is_some() || begin.elapsed() > Duration::from_secs(10) {
            return sample;
        }
    }
}

#[test]
fn cards_of_all_drivers_are_listed_by_vendor_and_address() {
    let tree = Tree::new();
    tree.card(0, "i915", "0000:00:02.0", I915);
    tree.card(1, "amdgpu", "0000:0c:00.0", AMDGPU);
    tree.card(2, "xe", "0000:03:00.0", XE);
    tree.card(3, "nouveau", "0000:04:00.0", "device/vendor = 0x10de\n");
    tree.write("sys/class/drm/card1-DP-1", "status = connected\n");
    tree.write("sys/bus/pci/devices/0000:0c:00.0", "numa_node = 1\n");
    let inventory = Inventory::read(&tree.config());
    let found: Vec<_> =
        inventory.devices.iter().map(|d| (d.index, d.vendor, d.backend, d.name.as_str())).collect();
    let expected = [
        (0, GpuVendor::Amd, GpuBackend::Amdgpu, "AMD device 0x744c"),
        (1, GpuVendor::Intel, GpuBackend::I915, "Intel device 0x9a49"),
        (2, GpuVendor::Intel, GpuBackend::Xe, "Intel device 0xe20b"),
    ];
    assert_eq!(found, expected);
    let amd = &inventory.devices[0];
    assert_eq!((amd.vram_total, amd.pci_bus_id.as_deref()), (Some(25_753_026_560), Some("0000:0c:00.0")));
    assert_eq!((amd.numa_node, amd.max_graphics_mhz, amd.max_memory_mhz), (Some(1), Some(2575), Some(1249)));
    assert_eq!((amd.power_limit_watts, amd.power_limit_max_watts), (Some(327.0), Some(376.0)));
    assert_eq!(amd.link.and_then(|link| link.max_generation), Some(4));
    assert_eq!(inventory.devices[1].vram_total, None, "i915 does not say");
    assert!(
        matches!(inventory.problems[..], [GpuMonitorError::NoDriver(_)]),
        "NVIDIA's: {:?}",
        inventory.problems
    );
}

#[test]
fn amdgpu_sample_has_what_the_kernel_offers() {
    let tree = Tree::new();
    tree.card(1, "amdgpu", "0000:0c:00.0", AMDGPU);
    let sample = tree.monitor(0).collect().unwrap();
    assert_eq!((sample.utilization.gpu_percent, sample.utilization.memory_percent), (Some(42), Some(17)));
    assert_eq!(sample.utilization.encoder_percent, None);
    assert_eq!((sample.memory.used, sample.memory.free), (Some(1 << 30), Some(25_753_026_560 - (1 << 30))));
    let thermal = sample.thermal.unwrap();
    assert_eq!((thermal.temperature_celsius, thermal.memory_temperature_celsius), (Some(54), Some(68)));
    assert_eq!(
        (thermal.temperature_threshold_slowdown, thermal.temperature_threshold_shutdown),
        (Some(100), Some(105))
    );
    assert_eq!(thermal.fan_speed_percent, Some(40));
    let power = sample.power.unwrap();
    assert_eq!((power.power_draw_watts, power.power_limit_watts), (Some(187.5), Some(327.0)));
    let clocks = sample.clocks.unwrap();
    assert_eq!((clocks.graphics_mhz, clocks.memory_mhz), (Some(2371), Some(96)));
    assert_eq!(sample.pcie.unwrap().link_width, Some(16));
    assert!(sample.throttle.is_none());
}

#[test]
fn intel_samples_have_what_the_kernel_offers() {
    let tree = Tree::new();
    tree.card(0, "i915", "0000:00:02.0", I915);
    tree.card(1, "xe", "0000:03:00.0", XE);
    let sample = tree.monitor(0).collect().unwrap();
    assert_eq!(sample.clocks.unwrap().graphics_mhz, Some(1300));
    assert_eq!(sample.throttle.unwrap().reasons, Some(ThrottleReasons::HARDWARE_THERMAL));
    assert!(sample.power.is_none() && sample.thermal.is_none());
    let xe = tree.monitor(1);
    let sample = xe.collect().unwrap();
    assert_eq!(sample.memory.total, Some(12 << 30));
    assert_eq!(sample.clocks.unwrap().graphics_mhz, Some(2850));
    assert_eq!(sample.throttle.unwrap().reasons, Some(ThrottleReasons::POWER_CAP));
    let thermal = sample.thermal.unwrap();
    assert_eq!((thermal.temperature_celsius, thermal.memory_temperature_celsius), (Some(48), Some(56)));
    let power = sample.power.unwrap();
    assert_eq!((power.power_draw_watts, power.energy_joules), (None, Some(5.0)));
    // The draw is the energy between two samples.
    std::thread::sleep(Duration::from_millis(20));
    tree.write("sys/class/drm/card1", "device/hwmon/hwmon4/energy1_input = 6000000");
    let draw = xe.collect().unwrap().power.unwrap().power_draw_watts.unwrap();
    assert!(draw > 0.0 && draw <= 50.0, "1 J in 20 ms or more: {draw} W");
}

#[test]
fn processes_come_from_their_descriptors() {
    let tree = Tree::new();
    tree.card(0, "xe", "0000:03:00.0", XE);
    let statistics = |ns: u64| {
        format!(
            "drm-driver:\\txe\\ndrm-pdev:\\t0000:03:00.0\\ndrm-client-id:\\t7\\ndrm-resident-vram0:\\t2048 KiB\\n\
             drm-resident-system:\\t9 MiB\\ndrm-engine-rcs:\\t{ns} ns\\ndrm-engine-bcs:\\t0 ns"
        )
    };
    tree.process(1234, &statistics(0));
    tree.process(99, &statistics(0).replace("03:00.0", "44:00.0"));
    let monitor = tree.monitor(0);
    let sample = full_sample(&monitor);
    let processes = sample.processes.unwrap();
    assert_eq!(processes.len(), 1, "the other one has another card open");
    let process = &processes[0];
    assert_eq!((process.pid, process.memory), (1234, Some(2 << 20)), "one client, though two descriptors");
    assert_eq!((process.name.as_deref(), process.user.as_deref()), (Some("blender"), Some("root")));
    assert_eq!(process.gpu_percent, None, "nothing to compare with");
    // A day of work since the last reading is all of the time.
    tree.process(1234, &statistics(86_400_000_000_000));
    let begin = Instant::now();
    let busy = loop {
        let sample = monitor.collect().unwrap();
        if sample.utilization.gpu_percent == Some(100) || begin.elapsed() > Duration::from_secs(10) {
            break sample;
        }
    };
    assert_eq!(busy.utilization.gpu_percent, Some(100));
    assert_eq!(busy.processes.unwrap()[0].gpu_percent, Some(100));
}

#[test]
fn card_that_goes_away_is_lost_and_comes_back() {
    let tree = Tree::new();
    tree.card(1, "amdgpu", "0000:0c:00.0", AMDGPU);
    let monitor = tree.monitor(0);
    let drm = tree.path("sys/class/drm");
    fs::rename(drm.join("card1"), drm.join("gone")).unwrap();
    assert!(matches!(monitor.collect(), Err(GpuMonitorError::DeviceLost { index: 0, .. })));
    fs::rename(drm.join("gone"), drm.join("card1")).unwrap();
    assert_eq!(monitor.collect().unwrap().utilization.gpu_percent, Some(42));
}

#[test]
fn garbage_in_files_is_not_known() {
    let tree = Tree::new();
    tree.card(0, "amdgpu", "0000:0c:00.0", AMDGPU);
    tree.write(
        "sys/class/drm/card0/device",
        "gpu_busy_percent = 777\nmem_info_vram_used = 99999999999999\nmem_busy_percent = x\ncurrent_link_speed = Unknown\n\
         hwmon/hwmon3/temp1_input = -5\nhwmon/hwmon3/pwm1 = 999\nhwmon/hwmon3/power1_average = 18446744073709551615\n\
         pp_dpm_mclk = S: 0Mhz",
    );
    let sample = tree.monitor(0).collect().unwrap();
    assert_eq!((sample.utilization.gpu_percent, sample.utilization.memory_percent), (None, None));
    assert_eq!((sample.memory.used, sample.memory.free), (None, None));
    let thermal = sample.thermal.unwrap();
    assert_eq!((thermal.temperature_celsius, thermal.fan_speed_percent), (None, None));
    assert_eq!(sample.power.unwrap().power_draw_watts, None);
    assert_eq!(sample.pcie.unwrap().link_gen, None);
    assert_eq!(sample.clocks.unwrap().memory_mhz, None);
}

/// Reading a device that sleeps would wake it.
#[test]
fn sleeping_card_is_not_read() {
    let tree = Tree::new();
    tree.card(0, "amdgpu", "0000:0c:00.0", AMDGPU);
    tree.write("sys/class/drm/card0/device", "power/runtime_status = suspended");
    let sample = tree.monitor(0).collect().unwrap();
    assert!(sample.problem.is_none() && sample.power.is_none());
    assert_eq!(sample.utilization.gpu_percent, None);
}
