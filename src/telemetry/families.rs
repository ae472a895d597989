//! The table of what the Prometheus page has: names, meaning, and where the value is in a sample.

use gputrace_monitor::{GpuMetrics, GpuThrottleMetrics};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeriesKind {
    Gauge,
    Counter,
}

/// One line of a family: the labels beside those of the device, and the value.
pub type Line = (Vec<(&'static str, String)>, f64);

#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: SeriesKind,
    pub help: &'static str,
    /// What is not known gives no line.
    pub lines: fn(&GpuMetrics) -> Vec<Line>,
}

const fn gauge(name: &'static str, help: &'static str, lines: fn(&GpuMetrics) -> Vec<Line>) -> Family {
    Family { name, kind: SeriesKind::Gauge, help, lines }
}

const fn counter(name: &'static str, help: &'static str, lines: fn(&GpuMetrics) -> Vec<Line>) -> Family {
    Family { name, kind: SeriesKind::Counter, help, lines }
}

fn one(value: Option<f64>) -> Vec<Line> {
    value.into_iter().map(|value| (Vec::new(), value)).collect()
}

fn by<const N: usize>(label: &'static str, values: [(&str, Option<f64>); N]) -> Vec<Line> {
    let known = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
    known.map(|(name, value)| (vec![(label, name.to_owned())], value)).collect()
}

fn int(value: Option<u32>) -> Option<f64> {
    value.map(f64::from)
}

fn long(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn ratio(percent: Option<u32>) -> Option<f64> {
    percent.map(|percent| f64::from(percent) / 100.0)
}

fn hertz(mhz: Option<u32>) -> Option<f64> {
    mhz.map(|mhz| f64::from(mhz) * 1e6)
}

fn mib(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| (bytes as f64 / 1_048_576.0).floor())
}

/// Seconds of so many nanoseconds.
fn seconds(throttle: Option<&GpuThrottleMetrics>, of: fn(&GpuThrottleMetrics) -> Option<u64>) -> Option<f64> {
    throttle.and_then(of).map(|ns| ns as f64 / 1e9)
}

/// Ours, in base units.
pub const OURS: [Family; 26] = [
    gauge("gputrace_gpu_up", "Whether the device could be read.", |sample| {
        one(Some(f64::from(u8::from(sample.problem.is_none()))))
    }),
    gauge("gputrace_gpu_utilization_ratio", "Busy part of the time, by unit.", |sample| {
        let u = &sample.utilization;
        by(
            "unit",
            [
                ("gpu", ratio(u.gpu_percent)),
                ("memory", ratio(u.memory_percent)),
                ("encoder", ratio(u.encoder_percent)),
                ("decoder", ratio(u.decoder_percent)),
            ],
        )
    }),
    gauge("gputrace_gpu_memory_size_bytes", "Device memory.", |sample| one(long(sample.memory.total))),
    gauge("gputrace_gpu_memory_used_bytes", "Device memory in use, without what is reserved.", |sample| {
        one(long(sample.memory.used))
    }),
    gauge("gputrace_gpu_memory_free_bytes", "Free device memory.", |sample| one(long(sample.memory.free))),
    gauge("gputrace_gpu_memory_reserved_bytes", "Device memory that driver and firmware keep.", |sample| {
        one(long(sample.memory.reserved))
    }),
    gauge("gputrace_gpu_temperature_celsius", "Temperature, by sensor.", |sample| {
        let thermal = sample.thermal.as_ref();
        by(
            "sensor",
            [
                ("gpu", int(thermal.and_then(|thermal| thermal.temperature_celsius))),
                ("memory", int(thermal.and_then(|thermal| thermal.memory_temperature_celsius))),
            ],
        )
    }),
    gauge("gputrace_gpu_temperature_limit_celsius", "Where the device acts on its heat.", |sample| {
        let thermal = sample.thermal.as_ref();
        by(
            "action",
            [
                ("slowdown", int(thermal.and_then(|thermal| thermal.temperature_threshold_slowdown))),
                ("shutdown", int(thermal.and_then(|thermal| thermal.temperature_threshold_shutdown))),
            ],
        )
    }),
    gauge("gputrace_gpu_fan_ratio", "Speed of the fastest fan, of its highest.", |sample| {
        one(ratio(sample.thermal.as_ref().and_then(|thermal| thermal.fan_speed_percent)))
    }),
    gauge("gputrace_gpu_power_watts", "Power draw.", |sample| {
        one(sample.power.as_ref().and_then(|power| power.power_draw_watts).map(f64::from))
    }),
    gauge("gputrace_gpu_power_limit_watts", "Power limit in force.", |sample| {
        one(sample.power.as_ref().and_then(|power| power.power_limit_watts).map(f64::from))
    }),
    gauge("gputrace_gpu_power_state", "Performance state: 0 is the fastest.", |sample| {
        one(int(sample.power.as_ref().and_then(|power| power.power_state)))
    }),
    counter("gputrace_gpu_energy_joules_total", "Energy since the driver was loaded.", |sample| {
        one(sample.power.as_ref().and_then(|power| power.energy_joules))
    }),
    gauge("gputrace_gpu_clock_hertz", "Clocks, by domain.", |sample| {
        let clocks = sample.clocks.as_ref();
        by(
            "domain",
            [
                ("graphics", hertz(clocks.and_then(|clocks| clocks.graphics_mhz))),
                ("sm", hertz(clocks.and_then(|clocks| clocks.sm_mhz))),
                ("memory", hertz(clocks.and_then(|clocks| clocks.memory_mhz))),
                ("video", hertz(clocks.and_then(|clocks| clocks.video_mhz))),
            ],
        )
    }),
    gauge("gputrace_gpu_throttle_reason", "1 for each reason for which clocks are lowered now.", |sample| {
        let reasons = sample.throttle.as_ref().and_then(|throttle| throttle.reasons);
        let names = reasons.map(|reasons| reasons.names()).unwrap_or_default();
        names.into_iter().map(|name| (vec![("reason", name)], 1.0)).collect()
    }),
    counter("gputrace_gpu_throttle_seconds_total", "Time with lowered clocks, by cause.", |sample| {
        let throttle = sample.throttle.as_ref();
        by(
            "cause",
            [
                ("power", seconds(throttle, |throttle| throttle.power_ns)),
                ("thermal", seconds(throttle, |throttle| throttle.thermal_ns)),
            ],
        )
    }),
    gauge("gputrace_gpu_pcie_bytes_per_second", "PCIe throughput as the driver measures it.", |sample| {
        let pcie = sample.pcie.as_ref();
        by(
            "direction",
            [
                ("transmit", long(pcie.and_then(|pcie| pcie.tx_bytes_per_sec))),
                ("receive", long(pcie.and_then(|pcie| pcie.rx_bytes_per_sec))),
            ],
        )
    }),
    gauge("gputrace_gpu_pcie_age_seconds", "Age of the PCIe throughput.", |sample| {
        one(sample.pcie.as_ref().and_then(|pcie| pcie.throughput_age).map(|age| age.as_secs_f64()))
    }),
    gauge("gputrace_gpu_link_generation", "PCIe generation, now and at most.", |sample| {
        let pcie = sample.pcie.as_ref();
        let (now, max) = (pcie.and_then(|pcie| pcie.link_gen), pcie.and_then(|pcie| pcie.max_link_gen));
        by("when", [("now", int(now)), ("at_most", int(max))])
    }),
    gauge("gputrace_gpu_link_lanes", "PCIe lanes, now and at most.", |sample| {
        let pcie = sample.pcie.as_ref();
        let (now, max) = (pcie.and_then(|pcie| pcie.link_width), pcie.and_then(|pcie| pcie.max_link_width));
        by("when", [("now", int(now)), ("at_most", int(max))])
    }),
    counter("gputrace_gpu_pcie_replays_total", "PCIe packets that were sent again.", |sample| {
        one(long(sample.pcie.as_ref().and_then(|pcie| pcie.replays)))
    }),
    counter("gputrace_gpu_ecc_errors_total", "Memory errors since the driver was loaded.", |sample| {
        let errors = sample.errors.as_ref();
        by(
            "type",
            [
                ("corrected", long(errors.and_then(|errors| errors.ecc_corrected))),
                ("uncorrected", long(errors.and_then(|errors| errors.ecc_uncorrected))),
            ],
        )
    }),
    counter("gputrace_gpu_xid_errors_total", "XID errors since this program began.", |sample| {
        one(long(sample.errors.as_ref().and_then(|errors| errors.xid_count)))
    }),
    counter("gputrace_gpu_remapped_rows_total", "Memory rows that were replaced.", |sample| {
        let errors = sample.errors.as_ref();
        by(
            "cause",
            [
                ("corrected", int(errors.and_then(|errors| errors.remapped_rows_corrected))),
                ("uncorrected", int(errors.and_then(|errors| errors.remapped_rows_uncorrected))),
            ],
        )
    }),
    gauge("gputrace_gpu_process_memory_bytes", "Device memory of a process.", |sample| {
        by_process(sample, |process| process.memory.map(|bytes| bytes as f64))
    }),
    gauge("gputrace_gpu_process_utilization_ratio", "Busy part of the time, by process.", |sample| {
        by_process(sample, |process| process.gpu_percent.map(|percent| f64::from(percent) / 100.0))
    }),
];

/// dcgm-exporter's names and units, where the meaning is the same.
pub const DCGM: [Family; 20] = [
    gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", |sample| {
        one(int(sample.clocks.as_ref().and_then(|clocks| clocks.sm_mhz)))
    }),
    gauge("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", |sample| {
        one(int(sample.clocks.as_ref().and_then(|clocks| clocks.memory_mhz)))
    }),
    gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", |sample| {
        one(int(sample.thermal.as_ref().and_then(|thermal| thermal.temperature_celsius)))
    }),
    gauge("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).", |sample| {
        one(int(sample.thermal.as_ref().and_then(|thermal| thermal.memory_temperature_celsius)))
    }),
    gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", |sample| {
        one(sample.power.as_ref().and_then(|power| power.power_draw_watts).map(f64::from))
    }),
    counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since boot (in mJ).", |sample| {
        one(sample.power.as_ref().and_then(|power| power.energy_joules).map(|joules| joules * 1e3))
    }),
    gauge("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "PCIe transmit throughput (in KB/s).", |sample| {
        one(long(sample.pcie.as_ref().and_then(|pcie| pcie.tx_bytes_per_sec)).map(|bytes| bytes / 1e3))
    }),
    gauge("DCGM_FI_DEV_PCIE_RX_THROUGHPUT", "PCIe receive throughput (in KB/s).", |sample| {
        one(long(sample.pcie.as_ref().and_then(|pcie| pcie.rx_bytes_per_sec)).map(|bytes| bytes / 1e3))
    }),
    counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Number of PCIe retries.", |sample| {
        one(long(sample.pcie.as_ref().and_then(|pcie| pcie.replays)))
    }),
    gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", |sample| {
        one(int(sample.utilization.gpu_percent))
    }),
    gauge("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory controller utilization (in %).", |sample| {
        one(int(sample.utilization.memory_percent))
    }),
    gauge("DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %).", |sample| {
        one(int(sample.utilization.encoder_percent))
    }),
    gauge("DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %).", |sample| {
        one(int(sample.utilization.decoder_percent))
    }),
    gauge("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error.", |sample| {
        // 0 stands for none, where the device reports them at all.
        let errors = sample.errors.as_ref();
        one(long(errors.and_then(|errors| errors.xid_count.map(|_| errors.xid_last.unwrap_or(0)))))
    }),
    gauge("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", |sample| one(mib(sample.memory.free))),
    gauge("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", |sample| one(mib(sample.memory.used))),
    gauge("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", |sample| {
        one(mib(sample.memory.reserved))
    }),
    counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Rows remapped for uncorrectable errors.", |sample| {
        one(int(sample.errors.as_ref().and_then(|errors| errors.remapped_rows_uncorrected)))
    }),
    counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Rows remapped for correctable errors.", |sample| {
        one(int(sample.errors.as_ref().and_then(|errors| errors.remapped_rows_corrected)))
    }),
    gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed.", |sample| {
        let failed = sample.errors.as_ref().and_then(|errors| errors.remapping_failed);
        one(failed.map(|failed| f64::from(u8::from(failed))))
    }),
];

fn by_process(sample: &GpuMetrics, value: fn(&gputrace_monitor::GpuProcess) -> Option<f64>) -> Vec<Line> {
    let processes = sample.processes.iter().flatten();
    let known = processes.filter_map(|process| Some((process, value(process)?)));
    known
        .map(|(process, value)| {
            let name = process.name.clone().unwrap_or_default();
            (vec![("pid", process.pid.to_string()), ("process", name)], value)
        })
        .collect()
}
