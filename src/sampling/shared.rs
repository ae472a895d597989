//! What the device threads have sampled and the collector has not taken yet.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gputrace_collector::batch::{DeviceIdentity, DeviceSample, DeviceSamples};

/// The collector takes samples twice a second. If it does not (its disk hangs), the latest ones are kept.
const SAMPLES_MAX: usize = DeviceSamples::SAMPLES_MAX;

#[derive(Debug, Default)]
pub struct Untaken(Mutex<Vec<DeviceSamples>>);

impl Untaken {
    fn lock(&self) -> MutexGuard<'_, Vec<DeviceSamples>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sample of a device, and why it has no values if it has none.
    pub fn add(
        &self,
        device: DeviceIdentity,
        interval_ns: u64,
        sample: Option<DeviceSample>,
        problem: String,
    ) {
        let mut all = self.lock();
        let known = all.iter().position(|of| of.device == device && of.interval_ns == interval_ns);
        let at = known.unwrap_or_else(|| {
            all.push(DeviceSamples { device, interval_ns, ..DeviceSamples::default() });
            all.len() - 1
        });
        let of = &mut all[at];
        if !problem.is_empty() {
            of.problem = problem;
        }
        if of.samples.len() >= SAMPLES_MAX {
            of.samples.remove(0);
        }
        of.samples.extend(sample);
    }

    pub fn take(&self) -> Vec<DeviceSamples> {
        std::mem::take(&mut self.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_taken_once_by_device_and_the_latest_are_kept() {
        let untaken = Untaken::default();
        let [first, second] = [1, 2].map(|uuid| DeviceIdentity { uuid: [uuid, 0], pci: [0; 3] });
        let most = SAMPLES_MAX as u64;
        (0..most + 3).for_each(|at| untaken.add(first, 5, Some(DeviceSample::new(at)), String::new()));
        untaken.add(second, 5, None, "lost".into());
        let taken = untaken.take();
        let seen: Vec<_> =
            taken.iter().map(|of| (of.device, of.samples.len(), of.problem.as_str())).collect();
        assert_eq!(seen, [(first, SAMPLES_MAX, ""), (second, 0, "lost")]);
        assert_eq!(taken[0].samples.first().unwrap().monotonic_ns, 3);
        assert!(untaken.take().is_empty());
    }
}
