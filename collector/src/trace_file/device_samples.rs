//! The payload of device samples: a device, and a column for each metric that any of its samples has.
//!
//! A column is the metric's number and a varint for each sample: 0 for a value that is absent, else one more
//! than the zigzag difference to the last value that is there. So a reader skips a metric that it does not
//! know.

use crate::batch::{DeviceIdentity, DeviceMetric, DeviceSample, DeviceSamples};
use crate::trace_file::bytes::{Bytes, put_text, put_varint, unzigzag, zigzag};

/// Larger values are stored as this one, so that every difference fits.
const VALUE_MAX: u64 = 1 << 61;

pub fn put(out: &mut Vec<u8>, samples: &DeviceSamples) {
    let DeviceSamples { device, interval_ns, problem, samples } = samples;
    device.uuid.iter().for_each(|half| put_varint(out, *half));
    device.pci.iter().for_each(|number| put_varint(out, u64::from(*number)));
    put_varint(out, *interval_ns);
    put_text(out, problem.as_bytes());
    put_varint(out, samples.len() as u64);
    put_column(out, samples.iter().map(|sample| Some(sample.monotonic_ns)));
    let is_there = |metric: &&DeviceMetric| samples.iter().any(|sample| sample.get(**metric).is_some());
    let metrics: Vec<_> = DeviceMetric::ALL.iter().filter(is_there).collect();
    put_varint(out, metrics.len() as u64);
    for metric in metrics {
        put_varint(out, *metric as u64);
        put_column(out, samples.iter().map(|sample| sample.get(*metric)));
    }
}

fn put_column(out: &mut Vec<u8>, values: impl Iterator<Item = Option<u64>>) {
    let mut last = 0;
    for value in values {
        let Some(value) = value.map(|value| value.min(VALUE_MAX)) else {
            put_varint(out, 0);
            continue;
        };
        put_varint(out, 1 + zigzag(value.cast_signed() - last));
        last = value.cast_signed();
    }
}

pub fn take(payload: &[u8]) -> Option<DeviceSamples> {
    let mut bytes = Bytes::new(payload);
    let uuid = [bytes.varint()?, bytes.varint()?];
    let pci = [bytes.u32()?, bytes.u32()?, bytes.u32()?];
    let interval_ns = bytes.varint()?;
    let problem = String::from_utf8_lossy(bytes.text()?).into_owned();
    let count = bytes.count().filter(|count| *count <= DeviceSamples::SAMPLES_MAX)?;
    let mut samples = vec![DeviceSample::default(); count];
    take_column(&mut bytes, &mut samples, |sample, value| {
        *sample = DeviceSample::new(value.unwrap_or(0));
    })?;
    for _ in 0..bytes.varint()? {
        let number = bytes.varint()?;
        let metric = DeviceMetric::ALL.iter().find(|metric| **metric as u64 == number);
        take_column(&mut bytes, &mut samples, |sample, value| {
            if let Some(metric) = metric {
                *sample = sample.with(*metric, value);
            }
        })?;
    }
    Some(DeviceSamples { device: DeviceIdentity { uuid, pci }, interval_ns, problem, samples })
}

fn take_column(
    bytes: &mut Bytes<'_>,
    samples: &mut [DeviceSample],
    mut set: impl FnMut(&mut DeviceSample, Option<u64>),
) -> Option<()> {
    let mut last = 0i64;
    for sample in samples {
        let value = bytes.varint()?.checked_sub(1).map(|difference| {
            last = last.wrapping_add(unzigzag(difference));
            // A damaged file may have values that no writer writes; a negative one is among the largest.
            last.cast_unsigned().min(VALUE_MAX)
        });
        set(sample, value);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn made() -> impl Strategy<Value = DeviceSamples> {
        let value = prop::option::of(0u64..=VALUE_MAX);
        let sample = (0u64..=VALUE_MAX, prop::collection::vec(value, DeviceMetric::ALL.len()));
        let sample = sample.prop_map(|(at, values)| {
            let all = DeviceMetric::ALL.iter().zip(values);
            all.fold(DeviceSample::new(at), |sample, (metric, value)| sample.with(*metric, value))
        });
        (any::<[u64; 2]>(), any::<[u32; 3]>(), any::<u64>(), ".*", prop::collection::vec(sample, 0..20))
            .prop_map(|(uuid, pci, interval_ns, problem, samples)| DeviceSamples {
                device: DeviceIdentity { uuid, pci },
                interval_ns,
                problem,
                samples,
            })
    }

    proptest! {
        #[test]
        fn samples_are_read_back(samples in made()) {
            let mut bytes = Vec::new();
            put(&mut bytes, &samples);
            prop_assert_eq!(take(&bytes), Some(samples));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(samples) = take(&bytes) {
                prop_assert!(samples.samples.len() <= bytes.len());
                let mut again = Vec::new();
                put(&mut again, &samples);
                prop_assert_eq!(take(&again), Some(samples));
            }
        }
    }

    #[test]
    fn samples_at_even_intervals_take_a_few_bytes_each() {
        let sample = |index: u64| {
            DeviceSample::new(1_000_000_000 + index * 100_000_000)
                .with(DeviceMetric::Power, Some(287_500 + index % 3))
                .with(DeviceMetric::SmClock, Some(1980))
        };
        let of = |count| {
            let samples = (0..count).map(sample).collect();
            let mut bytes = Vec::new();
            put(&mut bytes, &DeviceSamples { samples, ..DeviceSamples::default() });
            bytes.len()
        };
        assert_eq!(of(15) - of(5), 10 * (4 + 1 + 1));
    }

    #[test]
    fn metric_of_a_later_version_is_skipped() {
        let samples = vec![DeviceSample::new(5).with(DeviceMetric::Power, Some(9))];
        let known = DeviceSamples { samples, ..DeviceSamples::default() };
        let mut bytes = Vec::new();
        put(&mut bytes, &known);
        // One column more than before, of a metric that nobody knows, and something behind the last one.
        let columns = bytes.len() - 3;
        assert_eq!(bytes[columns..], [1, DeviceMetric::Power as u8, 1 + 2 * 9]);
        bytes[columns] = 2;
        bytes.extend([0x7f, 3, 0xff]);
        assert_eq!(take(&bytes), Some(known));
    }

    #[test]
    fn value_that_no_writer_writes_is_read_as_the_largest_one() {
        let mut bytes = Vec::new();
        let samples = vec![DeviceSample::new(5)];
        put(&mut bytes, &DeviceSamples { samples, ..DeviceSamples::default() });
        // The time's difference, before the number of columns: -1 instead of 5.
        let time = bytes.len() - 2;
        assert_eq!(bytes[time..], [1 + 2 * 5, 0]);
        bytes[time] = 2;
        let read = take(&bytes).unwrap();
        assert_eq!(read.samples, [DeviceSample::new(VALUE_MAX)]);
        let mut again = Vec::new();
        put(&mut again, &read);
        assert_eq!(take(&again), Some(read));
    }

    #[test]
    fn number_of_samples_is_limited() {
        let samples = vec![DeviceSample::new(1); DeviceSamples::SAMPLES_MAX + 1];
        let mut bytes = Vec::new();
        put(&mut bytes, &DeviceSamples { samples, ..DeviceSamples::default() });
        assert_eq!(take(&bytes), None);
    }
}
