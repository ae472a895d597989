//! Sampled devices in the report.

use crate::aggregate::Aggregates;
use crate::batch::{Counters, DeviceIdentity, DeviceMetric, DeviceSample, DeviceSamples};
use crate::model::Totals;
use crate::model::sink::Sink;
use crate::report::tests::tape::{Tape, python_stacks};
use crate::report::{Report, TextOptions};

const STEP_NS: u64 = 100_000;

/// A kernel with one slow run, and when that run began.
fn played() -> (Totals, Aggregates, u64) {
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    tape.at(111);
    for step in 0..200u64 {
        tape.launch(42, 256, Some(if step == 150 { 900_000 } else { 30_000 }));
    }
    let (totals, aggregates) = tape.play(Counters::default());
    let (_, runs) = aggregates.anomalies.sorted()[0];
    let start_ns = runs.worst.timing.start_ns;
    (totals, aggregates, start_ns)
}

fn identity(aggregates: &Aggregates) -> DeviceIdentity {
    let device = &aggregates.devices.get(0).unwrap().device;
    DeviceIdentity { uuid: device.uuid, pci: [device.pci_domain, device.pci_bus, device.pci_device] }
}

/// Samples from a while before a moment to a while after it, with a lower clock just then.
fn samples(device: DeviceIdentity, at_ns: u64, low_mhz: u64) -> DeviceSamples {
    let sample = |index: u64| {
        let time_ns = at_ns - 40 * STEP_NS + index * STEP_NS;
        let is_low = (38..45).contains(&index);
        DeviceSample::new(time_ns)
            .with(DeviceMetric::Energy, Some(1_000_000 + index * 1_000))
            .with(DeviceMetric::Power, Some(if is_low { 700_400 } else { 300_000 }))
            .with(DeviceMetric::Temperature, Some(60 + u64::from(is_low)))
            .with(DeviceMetric::SmClock, Some(if is_low { low_mhz } else { 1980 }))
            .with(DeviceMetric::MemoryClock, Some(2619))
            .with(DeviceMetric::ThrottleReasons, Some(if is_low { 0x4 } else { 0 }))
            .with(DeviceMetric::MemoryUsed, Some(18 << 30))
    };
    let samples = (0..60).map(sample).collect();
    DeviceSamples { device, interval_ns: STEP_NS, samples, ..DeviceSamples::default() }
}

#[test]
fn device_has_what_was_sampled_and_nothing_else() {
    let (totals, mut aggregates, start_ns) = played();
    let before = Report::new(&totals, &aggregates);
    assert!(before.devices[0].metrics.is_none());
    assert!(!before.to_json().contains("\"metrics\""));
    aggregates.device_samples(&samples(identity(&aggregates), start_ns, 1200));
    let report = Report::new(&totals, &aggregates);
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    let metrics = &json["devices"][0]["metrics"];
    assert_eq!(metrics["samples"], 60);
    assert_eq!(metrics["energy"], serde_json::json!({"joules": 59.0, "source": "counter"}));
    assert_eq!(metrics["power_watts"], serde_json::json!({"mean": 346.7, "min": 300.0, "max": 700.4}));
    assert_eq!(metrics["sm_clock_mhz"]["min"], 1200.0);
    assert_eq!(metrics["memory_peak_bytes"], 18u64 << 30);
    assert_eq!(metrics["throttled"], serde_json::json!([{"reason": "power cap", "ns": 7 * STEP_NS}]));
    for absent in ["power_limit_watts", "gpu_busy_percent", "pcie_sent_bytes_per_second", "problem"] {
        assert!(metrics.get(absent).is_none(), "{absent}: {metrics}");
    }
    let text = report.to_text(&TextOptions::default());
    for line in [
        "59 J; 347 W, peak 700 W; 60 °C, peak 61 °C; memory peak 18.0 GiB",
        "SM 1,889 MHz, 1200 to 1980; memory 2619 MHz",
        "clocks lowered: power cap 700 µs",
    ] {
        assert!(text.contains(&line.replace("1,889", "1889")), "{line}: {text}");
    }
}

#[test]
fn device_that_was_sampled_and_not_used_is_in_the_list() {
    use gputrace_wire::definition::{device, kind};
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    tape.launch(42, 256, Some(30_000));
    let mut fields = [0; 24];
    (fields[device::ORDINAL], fields[device::UUID_LOW], fields[device::PCI_BUS]) = (1, 77, 0x1b);
    tape.define(kind::DEVICE, 900, &fields, b"Unused GPU");
    let (totals, mut aggregates) = tape.play(Counters::default());
    let before = Report::new(&totals, &aggregates);
    let unused = DeviceIdentity { uuid: [77, 0], pci: [0, 0x1b, 0] };
    aggregates.device_samples(&DeviceSamples { samples: Vec::new(), ..samples(unused, 10_000_000, 1200) });
    let unknown = DeviceIdentity { uuid: [78, 0], pci: [0, 0x1c, 0] };
    aggregates.device_samples(&samples(unknown, 10_000_000, 1200));
    assert_eq!(Report::new(&totals, &aggregates).devices, before.devices, "no samples, or no such device");
    aggregates.device_samples(&samples(unused, 10_000_000, 1200));
    let report = Report::new(&totals, &aggregates);
    let [used, device] = &report.devices[..] else { panic!("{:?}", report.devices) };
    assert_eq!(used, &before.devices[0]);
    assert_eq!((device.index, device.ordinal, device.name.as_str()), (1, 1, "Unused GPU"));
    assert_eq!((device.operations, device.busy_ns, device.metrics.as_ref().unwrap().samples), (0, None, 60));
    let text = report.to_text(&TextOptions::default());
    assert!(text.contains("Unused GPU, not used\n"), "{text}");
}

#[test]
fn anomaly_has_what_the_device_did_at_that_time() {
    let (totals, mut aggregates, start_ns) = played();
    aggregates.device_samples(&samples(identity(&aggregates), start_ns, 1200));
    let report = Report::new(&totals, &aggregates);
    let state = report.anomalies.list[0].device_state.as_ref().unwrap();
    assert_eq!((state.sm_clock_mhz, state.usual_sm_clock_mhz, state.is_slower), (1200, Some(1980), true));
    assert_eq!(state.throttle_reasons, ["power cap"]);
    let text = report.to_text(&TextOptions::default());
    assert!(text.contains("adam_step: SM clock 1980 → 1200 MHz, power cap\n"), "{text}");
}

/// Samples come before or after the operations of their time, and are kept for minutes only.
#[test]
fn anomaly_is_explained_by_samples_that_are_no_longer_kept() {
    let (totals, mut aggregates, start_ns) = played();
    let device = identity(&aggregates);
    aggregates.device_samples(&samples(device, start_ns, 1200));
    for minute in 1..20u64 {
        let later = samples(device, start_ns + minute * 60_000_000_000, 700);
        (0..20).for_each(|part| {
            let shifted = later.samples.iter().map(|sample| {
                let time_ns = sample.monotonic_ns + part * 60 * STEP_NS;
                DeviceSample::new(time_ns).with(DeviceMetric::SmClock, Some(700))
            });
            let samples = shifted.collect();
            aggregates.device_samples(&DeviceSamples { samples, ..later.clone() });
        });
    }
    let report = Report::new(&totals, &aggregates);
    assert_eq!(report.anomalies.list[0].device_state.as_ref().unwrap().sm_clock_mhz, 1200);
}

#[test]
fn clock_that_is_as_usual_is_in_the_json_and_not_in_the_text() {
    let (totals, mut aggregates, start_ns) = played();
    aggregates.device_samples(&samples(identity(&aggregates), start_ns, 1965));
    let report = Report::new(&totals, &aggregates);
    assert!(!report.anomalies.list[0].device_state.as_ref().unwrap().is_slower);
    assert!(!report.to_text(&TextOptions::default()).contains("SM clock"));
}

#[test]
fn device_that_could_not_be_sampled_is_noted_once() {
    let (totals, mut aggregates, _) = played();
    let problem = "no GPU driver: libnvidia-ml.so.1 is not there".to_owned();
    for uuid in [1, 2] {
        let device = DeviceIdentity { uuid: [uuid, 0], pci: [0; 3] };
        aggregates.device_samples(&DeviceSamples {
            device,
            problem: problem.clone(),
            ..DeviceSamples::default()
        });
    }
    let report = Report::new(&totals, &aggregates);
    let notices: Vec<_> = report.notices.iter().filter(|notice| notice.text.contains("sampled")).collect();
    let [notice] = notices[..] else { panic!("{notices:?}") };
    assert_eq!(notice.text, format!("device metrics are not sampled: {problem}"));
    assert_eq!(notice.severity, "information");
}
