//! Devices: which devices of several processes are the same one, what each executed, how busy it was.

use rustc_hash::FxHashMap;

use crate::aggregate::idle::Lead;
use crate::aggregate::{Busy, Idle};
use crate::model::Totals;
use crate::model::counted::CountedLaunches;
use crate::model::definitions::{Definitions, Device};
use crate::model::operation::Operation;

/// Devices kept; a process that invents more has them counted as the last.
const DEVICES_MAX: usize = 256;
const ALIASES_MAX: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
pub struct DeviceAggregate {
    /// As the first process to use it describes it; the ordinal alone if none does.
    pub device: Device,
    pub operations: u64,
    /// Those with device times.
    pub timed: u64,
    pub busy: Busy,
}

/// How a device with device times spent a trace's wall time.
#[derive(Clone, Debug)]
pub struct DeviceTime {
    pub busy_ns: u64,
    /// At most: operations whose time is not known would make it less.
    pub idle_ns: u64,
    pub idle: Idle,
}

impl DeviceAggregate {
    /// `None` if no operation has a device time.
    pub fn time(&self, totals: &Totals) -> Option<DeviceTime> {
        if self.timed == 0 {
            return None;
        }
        let (busy_ns, idle) = self.busy.clone().into_sums();
        let idle_ns = totals.wall_ns().saturating_sub(busy_ns);
        let last_ns = self.busy.span_ns().map_or(0, |(_, last)| last);
        let end_ns = totals.end_monotonic_ns().saturating_sub(last_ns);
        Some(DeviceTime { busy_ns, idle_ns, idle: idle.of_run(idle_ns, end_ns) })
    }
}

/// Each process has its own ordinals, so devices are compared by their descriptions.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    list: Vec<DeviceAggregate>,
    /// By process and ordinal, the index in the list.
    indices: FxHashMap<(u32, u32), usize>,
}

impl Devices {
    /// Counts an operation and returns its device's index.
    #[inline]
    pub fn add(&mut self, operation: &Operation, definitions: &Definitions) -> usize {
        let (process, ordinal) = (operation.process, operation.device);
        let index = match self.indices.get(&(process, ordinal)) {
            Some(index) => *index,
            None => self.find(process, ordinal, definitions),
        };
        if let Some(device) = self.list.get_mut(index) {
            device.operations += 1;
            if let Some(timing) = operation.timing {
                device.timed += 1;
                device.busy.add(timing.start_ns, timing.duration_ns, Lead::new(operation, timing));
            }
        }
        index
    }

    /// Counts launches without device times.
    pub fn add_counted(&mut self, launches: &CountedLaunches, definitions: &Definitions) {
        let (process, ordinal) = (launches.process, launches.device);
        let known = self.indices.get(&(process, ordinal)).copied();
        let index = known.unwrap_or_else(|| self.find(process, ordinal, definitions));
        if let Some(device) = self.list.get_mut(index) {
            device.operations = device.operations.saturating_add(launches.launches);
        }
    }

    fn find(&mut self, process: u32, ordinal: u32, definitions: &Definitions) -> usize {
        let known = definitions.device_by_ordinal(ordinal);
        let device = known.clone().unwrap_or(Device { ordinal, ..Device::default() });
        let same = |entry: &DeviceAggregate| {
            entry.device.uuid == device.uuid && (device.uuid != [0; 2] || entry.device.ordinal == ordinal)
        };
        let index = match self.list.iter().position(same) {
            Some(index) => index,
            None if self.list.len() < DEVICES_MAX => {
                self.list.push(DeviceAggregate { device, ..DeviceAggregate::default() });
                self.list.len() - 1
            }
            None => DEVICES_MAX - 1,
        };
        // A device that is not described yet may be by its next operation.
        if known.is_some() && self.indices.len() < ALIASES_MAX {
            self.indices.insert((process, ordinal), index);
        }
        index
    }

    /// Forgets the process's ordinals; what it executed stays.
    pub fn process_ends(&mut self, process: u32) {
        self.indices.retain(|(of, _), _| *of != process);
    }

    pub fn iter(&self) -> impl Iterator<Item = &DeviceAggregate> {
        self.list.iter()
    }

    pub fn get(&self, index: usize) -> Option<&DeviceAggregate> {
        self.list.get(index)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_wire::definition::{device, kind};

    use super::*;
    use crate::batch::Definition;
    use crate::model::operation::{Timing, Verdict, What};

    #[test]
    fn device_of_many_processes_is_one_and_ordinals_of_exited_ones_are_forgotten() {
        let mut fields = vec![0; 24];
        (fields[device::UUID_LOW], fields[device::UUID_HIGH]) = (7, 9);
        let mut definitions = Definitions::default();
        definitions.add(&Definition { kind: kind::DEVICE, id: 1, fields, text: b"GPU".to_vec() });
        let mut devices = Devices::default();
        for process in 0..1_000 {
            let timing = Some(Timing { start_ns: u64::from(process) * 100, duration_ns: 10 });
            let operation = Operation {
                process,
                what: What::Graph,
                call: None,
                timing,
                device: 0,
                context: 0,
                stream: 0,
                graph: None,
                verdict: Verdict::None,
            };
            assert_eq!(devices.add(&operation, &definitions), 0);
            assert_eq!(devices.indices.len(), 2.min(process as usize + 1));
            if process > 0 {
                devices.process_ends(process);
            }
        }
        let [device] = &devices.list[..] else { panic!("{devices:?}") };
        assert_eq!((device.operations, device.timed, device.busy.busy_ns()), (1_000, 1_000, 10_000));
    }
}
