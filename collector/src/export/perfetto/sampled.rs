//! What was sampled of a device: counters, and slices while its clocks were lowered, on tracks above the
//! processes, since a device belongs to none of them.

use std::collections::hash_map::Entry;
use std::io;

use rustc_hash::FxHashMap;

use crate::aggregate::gap_ns;
use crate::batch::{DeviceIdentity, DeviceMetric, DeviceSample, DeviceSamples};
use crate::export::Trace;
use crate::export::device_counters::{
    BYTES, DEVICE_COUNTERS, DeviceCounter, LOWERED, LOWERED_REASONS, lowered_for,
};
use crate::export::perfetto::sequence::{EventType, Name};
use crate::export::perfetto::tracks::{CounterUnit, Tracks, rank};

/// All sampled devices.
#[derive(Debug, Default)]
pub struct SampledTracks(FxHashMap<DeviceIdentity, SampledTrack>);

#[derive(Debug)]
struct SampledTrack {
    track: u64,
    counters: [Option<u64>; DEVICE_COUNTERS.len()],
    /// In the order of [`lowered_for`].
    reasons: [Option<ReasonTrack>; LOWERED_REASONS],
    /// When a sample was taken last, as nanoseconds since the Unix epoch.
    last_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct ReasonTrack {
    track: u64,
    sequence: usize,
    is_open: bool,
}

impl SampledTracks {
    pub fn add(&mut self, tracks: &mut Tracks, samples: &DeviceSamples, trace: &Trace<'_>) -> io::Result<()> {
        if samples.samples.is_empty() {
            return Ok(());
        }
        let device = match self.0.entry(samples.device) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let track = tracks.group(&trace.sampled_device_name(&samples.device))?;
                let (counters, reasons) = ([None; DEVICE_COUNTERS.len()], [None; LOWERED_REASONS]);
                new.insert(SampledTrack { track, counters, reasons, last_ns: 0 })
            }
        };
        let gap_ns = gap_ns(samples.interval_ns);
        samples.samples.iter().try_for_each(|sample| {
            let at_ns = trace.sample_unix_ns(sample.monotonic_ns);
            device.pass_to(tracks, at_ns, gap_ns)?;
            device.add(tracks, sample, at_ns)
        })
    }

    /// Ends the slices that are open.
    pub fn finish(&mut self, tracks: &mut Tracks) -> io::Result<()> {
        self.0.values_mut().try_for_each(|device| device.set_reasons(tracks, 0, device.last_ns))
    }
}

impl SampledTrack {
    /// Ends the slices at the last sample if nothing was sampled from there on.
    fn pass_to(&mut self, tracks: &mut Tracks, at_ns: u64, gap_ns: u64) -> io::Result<()> {
        match at_ns.checked_sub(self.last_ns) {
            Some(passed_ns) if passed_ns <= gap_ns => {}
            Some(_) => self.set_reasons(tracks, 0, self.last_ns)?,
            None => {
                // Another trace, whose slices may overlap with those that are there.
                self.set_reasons(tracks, 0, self.last_ns)?;
                self.reasons = [None; LOWERED_REASONS];
            }
        }
        self.last_ns = at_ns;
        Ok(())
    }

    fn add(&mut self, tracks: &mut Tracks, sample: &DeviceSample, at_ns: u64) -> io::Result<()> {
        for (index, shown) in DEVICE_COUNTERS.into_iter().enumerate() {
            let DeviceCounter { metric, divisor, unit } = shown;
            let (Some(value), Some(counter)) = (sample.get(metric), self.counters.get_mut(index)) else {
                continue;
            };
            let track = match *counter {
                Some(track) => track,
                None => {
                    let rank = rank::numbered(rank::SAMPLED, index as u32);
                    let unit = if unit == BYTES { CounterUnit::Bytes } else { CounterUnit::Named(unit) };
                    *counter.insert(tracks.counter(self.track, metric.name(), rank, unit)?)
                }
            };
            let value = i64::try_from((value + divisor / 2) / divisor).unwrap_or(i64::MAX);
            tracks.counter_value(track, at_ns, value)?;
        }
        // As in the report, a reason counts up to the next sample, and not while the device cannot be read.
        self.set_reasons(tracks, sample.get(DeviceMetric::ThrottleReasons).unwrap_or(0), at_ns)
    }

    /// Begins and ends slices, so that those of `reasons` are open.
    fn set_reasons(&mut self, tracks: &mut Tracks, reasons: u64, at_ns: u64) -> io::Result<()> {
        for ((name, is_set), entry) in lowered_for(reasons).zip(&mut self.reasons) {
            if is_set && entry.is_none() {
                let track = tracks.child(self.track, LOWERED, rank::SAMPLED)?;
                *entry = Some(ReasonTrack { track, sequence: tracks.sequence_of(track), is_open: false });
            }
            let Some(known) = entry.as_mut().filter(|known| known.is_open != is_set) else { continue };
            known.is_open = is_set;
            let (sequence, track) = (known.sequence, known.track);
            if is_set {
                let begin = (EventType::Begin, track, at_ns);
                tracks.event(sequence, begin, |event| {
                    event.name(Name::Fixed(name), || name.to_owned());
                })?;
            } else {
                tracks.end(sequence, track, at_ns)?;
            }
        }
        Ok(())
    }
}
