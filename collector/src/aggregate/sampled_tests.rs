//! Tests of what samples of a device come to.

use super::*;

const STEP_NS: u64 = 100_000_000;

fn batch(samples: Vec<DeviceSample>) -> DeviceSamples {
    DeviceSamples { interval_ns: STEP_NS, samples, ..DeviceSamples::default() }
}

/// A sample in each tenth of a second, with what `fill` adds.
fn sampled(count: u64, fill: impl Fn(u64, DeviceSample) -> DeviceSample) -> SampledDevice {
    let mut devices = SampledDevices::default();
    for index in 0..count {
        devices.add(&batch(vec![fill(index, DeviceSample::new(index * STEP_NS))]));
    }
    devices.0.swap_remove(0)
}

#[test]
fn energy_is_the_counters_increase() {
    let device = sampled(11, |index, sample| {
        sample
            .with(DeviceMetric::Power, Some(300_000))
            .with(DeviceMetric::Energy, Some(7_000_000 + index * 25_000))
    });
    assert_eq!(device.energy(), Some(Energy { counted_joules: Some(250.0), integrated_joules: None }));
    assert_eq!((device.samples, device.failed, device.covered_ns), (11, 0, 10 * STEP_NS));
}

#[test]
fn energy_of_a_device_without_a_counter_is_the_integral_of_its_power() {
    let device = sampled(11, |index, sample| {
        sample.with(DeviceMetric::Power, Some(if index < 5 { 100_000 } else { 300_000 }))
    });
    // Four steps at 100 W, one between, five at 300 W.
    let integrated_joules = Some(40.0 + 20.0 + 150.0);
    assert_eq!(device.energy(), Some(Energy { counted_joules: None, integrated_joules }));
    let power = device.level(DeviceMetric::Power);
    assert_eq!((power.min(), power.max()), (Some(100_000), Some(300_000)));
}

/// Reading the counter takes a driver long, so few samples have it.
#[test]
fn power_counts_only_where_no_readings_of_the_counter_are_around_it() {
    let device = sampled(41, |index, sample| {
        let is_read = [10, 30].contains(&index);
        let energy = is_read.then_some(5_000_000 + index * 20_000);
        sample.with(DeviceMetric::Power, Some(300_000)).with(DeviceMetric::Energy, energy)
    });
    let expected = Energy { counted_joules: Some(400.0), integrated_joules: Some(300.0 + 300.0) };
    assert_eq!(device.energy(), Some(expected));
}

#[test]
fn device_without_a_value_has_none() {
    let device = sampled(3, |_, sample| sample.with(DeviceMetric::SmClock, Some(1980)));
    assert_eq!(device.energy(), None);
    let power = device.level(DeviceMetric::Power);
    assert_eq!((power.mean(), power.min(), power.max()), (None, None, None));
    assert_eq!(device.throttle_counters_ns(), (None, None));
    assert_eq!(device.level(DeviceMetric::SmClock).mean(), Some(1980.0));
}

#[test]
fn time_in_which_nothing_was_sampled_is_not_counted() {
    let mut devices = SampledDevices::default();
    let energy = |at, mj| DeviceSample::new(at).with(DeviceMetric::Energy, Some(mj));
    devices.add(&batch(vec![energy(0, 1_000), energy(STEP_NS, 3_000)]));
    // The device was not in use for a minute, and then the driver was loaded again.
    let later = 60_000_000_000;
    devices.add(&batch(vec![
        energy(later, 500_000),
        energy(later + STEP_NS, 10),
        energy(later + 2 * STEP_NS, 60),
    ]));
    let [device] = &devices.0[..] else { panic!("{devices:?}") };
    assert_eq!(device.energy(), Some(Energy { counted_joules: Some(2.05), integrated_joules: None }));
    assert_eq!(device.covered_ns, 3 * STEP_NS);
}

#[test]
fn samples_of_the_same_time_from_another_trace_count_once() {
    let mut devices = SampledDevices::default();
    let all: Vec<_> =
        (0..10).map(|index| DeviceSample::new(index * STEP_NS).with(DeviceMetric::Power, Some(9))).collect();
    devices.add(&batch(all.clone()));
    devices.add(&batch(all));
    assert_eq!((devices.0[0].samples, devices.0[0].covered_ns), (10, 9 * STEP_NS));
}

#[test]
fn throttled_time_is_added_up_by_reason() {
    let device = sampled(10, |index, sample| {
        sample.with(DeviceMetric::ThrottleReasons, Some(if index < 4 { 0x24 } else { 0x1 }))
    });
    let throttled: Vec<_> = (0..32).filter(|bit| device.throttled_ns[*bit] > 0).collect();
    assert_eq!(throttled, [0, 2, 5]);
    assert_eq!((device.throttled_ns[2], device.throttled_ns[0]), (4 * STEP_NS, 5 * STEP_NS));
}

#[test]
fn samples_without_values_are_counted_as_failed() {
    let device =
        sampled(5, |index, sample| sample.with(DeviceMetric::Temperature, (index != 2).then_some(60)));
    assert_eq!((device.samples, device.failed), (5, 1));
    assert_eq!(device.level(DeviceMetric::Temperature).mean(), Some(60.0));
}

#[test]
fn moment_has_the_lowest_clock_of_the_run_and_the_usual_one_of_before() {
    let device = sampled(100, |index, sample| {
        let (mhz, reasons) = if (60..65).contains(&index) { (1200, 0x4) } else { (1980, 0) };
        sample.with(DeviceMetric::SmClock, Some(mhz)).with(DeviceMetric::ThrottleReasons, Some(reasons))
    });
    let at = |start: f64, end: f64| {
        device.moment((start * STEP_NS as f64) as u64, (end * STEP_NS as f64) as u64).unwrap()
    };
    let capped = DeviceMoment { sm_mhz: 1200, usual_sm_mhz: Some(1980), reasons: 0x4 };
    assert_eq!(at(62.1, 62.2), capped);
    // Between two samples, the clock may have been either's.
    assert_eq!(at(59.5, 59.6), capped);
    assert_eq!(at(70.0, 71.0), DeviceMoment { sm_mhz: 1980, usual_sm_mhz: Some(1980), reasons: 0 });
    assert_eq!(at(2.0, 2.1).usual_sm_mhz, None, "too little is known of before");
    assert_eq!(device.moment(3_600 * STEP_NS, 3_601 * STEP_NS), None, "not sampled then");
}

#[test]
fn samples_that_are_kept_of_a_long_run_are_bounded() {
    let device = sampled(RECENT_MAX as u64 + 100, |_, sample| sample);
    assert_eq!(device.recent.len(), RECENT_MAX);
    let mut devices = SampledDevices::default();
    for uuid in 0..1_000 {
        let identity = DeviceIdentity { uuid: [uuid, 1], pci: [0; 3] };
        devices.add(&DeviceSamples { device: identity, ..batch(vec![DeviceSample::new(1)]) });
    }
    assert_eq!(devices.0.len(), DEVICES_MAX);
}
