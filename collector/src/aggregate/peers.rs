//! Copies between devices, by the pair of devices.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::aggregate::Moved;
use crate::model::definitions::Definitions;
use crate::model::operation::Direction;

/// Pairs that have a row. Copies of others are counted by direction only.
const PAIRS_MAX: usize = 1024;
const ALIASES_MAX: usize = 1 << 14;

/// A device at one end of a copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct EndDevice {
    /// 0 if the device is not described.
    pub uuid: [u64; 2],
    /// As the first process numbers it that used the pair.
    pub ordinal: u32,
}

impl EndDevice {
    fn new(ordinal: u32, definitions: &Definitions) -> EndDevice {
        let uuid = definitions.device_by_ordinal(ordinal).map_or([0; 2], |device| device.uuid);
        EndDevice { uuid, ordinal }
    }

    fn is_described(&self) -> bool {
        self.uuid != [0; 2]
    }

    /// Without the ordinal where the uuid is enough: each process has its own ordinals.
    fn key(self) -> EndDevice {
        if self.is_described() { EndDevice { ordinal: 0, ..self } } else { self }
    }
}

type PairKey = (Direction, [EndDevice; 2]);

/// Copies from one device to another.
#[derive(Clone, Debug, Default)]
pub struct PeerMoved {
    /// From and to.
    pub devices: [EndDevice; 2],
    pub moved: Moved,
}

#[derive(Clone, Debug, Default)]
pub struct PeerCopies {
    rows: BTreeMap<PairKey, PeerMoved>,
    /// By process and its ordinals, those that are described.
    keys: FxHashMap<(u32, [u16; 2]), [EndDevice; 2]>,
}

impl PeerCopies {
    /// `ordinals` are the process's numbers of the devices, from and to.
    pub(super) fn add(
        &mut self,
        process: u32,
        direction: Direction,
        ordinals: [u16; 2],
        bytes: u64,
        duration_ns: Option<u64>,
        definitions: &Definitions,
    ) {
        let devices = match self.keys.get(&(process, ordinals)) {
            Some(known) => *known,
            None => {
                let devices = ordinals.map(|ordinal| EndDevice::new(ordinal.into(), definitions));
                // A device that is not described yet may be by the next copy.
                if devices.iter().all(EndDevice::is_described) && self.keys.len() < ALIASES_MAX {
                    self.keys.insert((process, ordinals), devices);
                }
                devices
            }
        };
        let key = (direction, devices.map(EndDevice::key));
        if self.rows.len() < PAIRS_MAX || self.rows.contains_key(&key) {
            let row = self.rows.entry(key).or_insert_with(|| PeerMoved { devices, ..PeerMoved::default() });
            row.moved.add(bytes, duration_ns);
        }
    }

    /// Forgets the process's ordinals; what it copied stays.
    pub(super) fn process_ends(&mut self, process: u32) {
        self.keys.retain(|(of, _), _| *of != process);
    }

    pub fn of(&self, direction: Direction) -> impl Iterator<Item = &PeerMoved> {
        self.rows.iter().filter(move |((of, _), _)| *of == direction).map(|(_, row)| row)
    }
}

#[cfg(test)]
mod tests {
    use gputrace_wire::definition::{device, kind};

    use super::*;
    use crate::batch::Definition;

    /// A process with devices of these uuids.
    fn process(uuids: &[u64]) -> Definitions {
        let mut definitions = Definitions::default();
        for (ordinal, uuid) in uuids.iter().enumerate() {
            let mut fields = vec![0; 24];
            fields[device::ORDINAL] = ordinal as u64;
            fields[device::UUID_LOW] = *uuid;
            let id = ordinal as u32 + 1;
            definitions.add(&Definition { kind: kind::DEVICE, id, fields, text: b"GPU".to_vec() });
        }
        definitions
    }

    fn rows(peers: &PeerCopies) -> Vec<([u64; 2], [u32; 2], u64, u64)> {
        let row = |row: &PeerMoved| {
            let (uuids, ordinals) = (row.devices.map(|of| of.uuid[0]), row.devices.map(|of| of.ordinal));
            (uuids, ordinals, row.moved.calls, row.moved.bytes)
        };
        peers.of(Direction::PeerToPeer).map(row).collect()
    }

    #[test]
    fn pairs_are_joined_across_processes_and_directions_are_apart() {
        let mut peers = PeerCopies::default();
        let (first, turned) = (process(&[7, 8]), process(&[8, 7]));
        for _ in 0..2 {
            peers.add(0, Direction::PeerToPeer, [0, 1], 100, Some(10), &first);
            peers.add(1, Direction::PeerToPeer, [1, 0], 50, None, &turned);
        }
        peers.add(0, Direction::PeerToPeer, [1, 0], 3, Some(10), &first);
        peers.add(0, Direction::GpuToGpu, [1, 0], 3, Some(10), &first);
        // A device without a description is its ordinal.
        peers.add(0, Direction::PeerToPeer, [0, 5], 4, Some(10), &first);
        let expected = [([7, 0], [0, 5], 1, 4), ([7, 8], [0, 1], 4, 300), ([8, 7], [1, 0], 1, 3)];
        assert_eq!(rows(&peers), expected);
        assert_eq!(peers.of(Direction::GpuToGpu).count(), 1);
        peers.process_ends(0);
        assert!(peers.keys.keys().all(|(process, _)| *process == 1), "{:?}", peers.keys);
        // The number may be given to another process, with other devices.
        peers.add(0, Direction::PeerToPeer, [0, 1], 6, None, &turned);
        assert_eq!(rows(&peers)[2], ([8, 7], [1, 0], 2, 9));
    }

    #[test]
    fn invented_devices_do_not_fill_the_memory() {
        let mut peers = PeerCopies::default();
        let none = Definitions::default();
        for ordinal in 0..2 * PAIRS_MAX as u16 {
            peers.add(0, Direction::PeerToPeer, [ordinal, 0], u64::MAX, Some(u64::MAX), &none);
            peers.add(0, Direction::PeerToPeer, [0, 0], u64::MAX, Some(u64::MAX), &none);
        }
        assert_eq!((rows(&peers).len(), peers.keys.len()), (PAIRS_MAX, 0));
        assert_eq!(rows(&peers)[0], ([0, 0], [0, 0], 2 * PAIRS_MAX as u64 + 1, u64::MAX));
    }
}
