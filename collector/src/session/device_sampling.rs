//! Samples of the devices that the session's processes use.
//!
//! This crate reads no device: the program that records passes a [`DeviceSampler`]. The processing thread
//! reports to it which devices are in use, and takes the samples twice a second.

use std::collections::BTreeMap;

use gputrace_wire::definition::{device, kind};

use crate::batch::{Batch, DeviceIdentity, DeviceSamples};

/// The most devices of a process that are sampled; what a process defines is not trusted.
const DEVICES_MAX: usize = 64;

/// Takes samples of devices, on threads of its own. Its methods are called on the processing thread, which
/// must keep up with the programs: none of them may wait, except for the last one, which may take a moment.
pub trait DeviceSampler: Send {
    /// A process begins to use that device. `is_simulated`: it is of the simulated driver.
    fn begin(&mut self, device: DeviceIdentity, is_simulated: bool);
    /// No process uses that device any more.
    fn end(&mut self, device: DeviceIdentity);
    /// What was sampled since the last call, in order of time for each device.
    fn take(&mut self) -> Vec<DeviceSamples>;
    /// Ends, and returns the last samples.
    fn finish(self: Box<Self>) -> Vec<DeviceSamples>;
}

/// The sampler, and which process uses which devices.
pub(super) struct DeviceSampling {
    /// `None` once the stream has ended, or where nothing is sampled.
    sampler: Option<Box<dyn DeviceSampler>>,
    in_use: BTreeMap<u32, Vec<DeviceIdentity>>,
}

impl DeviceSampling {
    pub fn new(sampler: Option<Box<dyn DeviceSampler>>) -> DeviceSampling {
        DeviceSampling { sampler, in_use: BTreeMap::new() }
    }

    /// Notes which devices a batch's process begins or ceases to use.
    pub fn note(&mut self, batch: &Batch) {
        let Some(sampler) = &mut self.sampler else { return };
        match batch {
            Batch::Definitions { process, records } => {
                for record in records.iter().filter(|record| record.kind == kind::DEVICE) {
                    let identity = DeviceIdentity::of(record);
                    let is_new = !self.in_use.values().flatten().any(|used| *used == identity);
                    let used = self.in_use.entry(*process).or_default();
                    if used.contains(&identity) || used.len() >= DEVICES_MAX {
                        continue;
                    }
                    used.push(identity);
                    if is_new {
                        sampler.begin(identity, record.field(device::SIMULATED) == 1);
                    }
                }
            }
            Batch::ProcessEnd { process, .. } => {
                for identity in self.in_use.remove(process).unwrap_or_default() {
                    if !self.in_use.values().flatten().any(|used| *used == identity) {
                        sampler.end(identity);
                    }
                }
            }
            _ => {}
        }
    }

    /// What was sampled since the last call.
    pub fn take(&mut self) -> Vec<Batch> {
        batches(self.sampler.as_mut().map(|sampler| sampler.take()))
    }

    /// The last samples; no more are taken.
    pub fn finish(&mut self) -> Vec<Batch> {
        batches(self.sampler.take().map(|sampler| sampler.finish()))
    }
}

fn batches(samples: Option<Vec<DeviceSamples>>) -> Vec<Batch> {
    samples.into_iter().flatten().map(Batch::DeviceSamples).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::batch::{Definition, ProcessEnd};

    /// Notes what it is asked for.
    #[derive(Clone, Default)]
    struct Noted(Arc<Mutex<Vec<(&'static str, u64)>>>);

    impl DeviceSampler for Noted {
        fn begin(&mut self, device: DeviceIdentity, is_simulated: bool) {
            let what = if is_simulated { "begin simulated" } else { "begin" };
            self.0.lock().unwrap().push((what, device.uuid[0]));
        }

        fn end(&mut self, device: DeviceIdentity) {
            self.0.lock().unwrap().push(("end", device.uuid[0]));
        }

        fn take(&mut self) -> Vec<DeviceSamples> {
            vec![DeviceSamples::default()]
        }

        fn finish(mut self: Box<Self>) -> Vec<DeviceSamples> {
            self.take()
        }
    }

    fn uses(process: u32, uuid: u64, is_simulated: bool) -> Batch {
        let mut fields = vec![0; 24];
        (fields[device::UUID_LOW], fields[device::SIMULATED]) = (uuid, u64::from(is_simulated));
        let record = Definition { kind: kind::DEVICE, id: 1, fields, text: Vec::new() };
        let other = Definition { kind: kind::THREAD, id: 2, ..Definition::default() };
        Batch::Definitions { process, records: vec![other, record] }
    }

    fn ends(process: u32) -> Batch {
        Batch::ProcessEnd { process, end: ProcessEnd::Exit, monotonic_ns: 0 }
    }

    #[test]
    fn device_is_sampled_from_its_first_process_to_the_end_of_its_last() {
        let noted = Noted::default();
        let mut sampling = DeviceSampling::new(Some(Box::new(noted.clone())));
        for batch in [uses(0, 7, false), uses(0, 7, false), uses(1, 7, false), uses(1, 8, true), ends(0)] {
            sampling.note(&batch);
        }
        assert_eq!(*noted.0.lock().unwrap(), [("begin", 7), ("begin simulated", 8)]);
        sampling.note(&ends(1));
        sampling.note(&ends(5));
        assert_eq!(noted.0.lock().unwrap()[2..], [("end", 7), ("end", 8)]);
        assert_eq!(sampling.finish().len(), 1);
        assert!(sampling.take().is_empty(), "nothing is taken after the end");
        sampling.note(&uses(2, 9, false));
        assert_eq!(noted.0.lock().unwrap().len(), 4);
    }

    #[test]
    fn process_that_invents_devices_has_few_sampled() {
        let noted = Noted::default();
        let mut sampling = DeviceSampling::new(Some(Box::new(noted.clone())));
        (0..1000).for_each(|uuid| sampling.note(&uses(0, uuid, false)));
        assert_eq!(noted.0.lock().unwrap().len(), DEVICES_MAX);
    }
}
