//! Which numbers stand for processes, devices and streams in the Chrome format, where a track is a `pid` and
//! a `tid`.
//!
//! A process has its process id, a device its ordinal, a stream its number in device records, as PyTorch
//! writes them. Where two have the same, the later one gets another number. A process's numbers are free
//! after its end.

use rustc_hash::{FxHashMap, FxHashSet};

/// Streams that have a track of their own at one time; further ones share [`SHARED_STREAM`].
const STREAMS_MAX: usize = 1 << 16;
const SHARED_STREAM: u32 = 999_999;
/// Devices that are told apart.
const DEVICES_MAX: usize = 1 << 10;
/// Further processes with one process id get numbers from here on, above every process id.
const OTHER_PIDS: u32 = 10_000_000;
/// Further streams with one number get numbers from here on.
const OTHER_STREAMS: u32 = 1_000_000;

#[derive(Debug, Default)]
pub struct Tracks {
    processes: FxHashMap<u32, ProcessTracks>,
    pids: FxHashSet<u32>,
    devices: FxHashMap<DeviceKey, u32>,
    device_numbers: FxHashSet<u32>,
    /// By device number and `tid`.
    streams: FxHashSet<(u32, u32)>,
    next_pid: u32,
    next_stream: u32,
}

#[derive(Debug, Default)]
struct ProcessTracks {
    pid: Option<u32>,
    devices: FxHashMap<u32, u32>,
    /// By device number, context and number in records.
    streams: FxHashMap<[u32; 3], u32>,
}

/// What identifies a device over all processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum DeviceKey {
    Uuid([u64; 2]),
    /// Of those whose UUID is not known.
    Ordinal(u32),
}

impl Tracks {
    /// The `pid` of a process whose process id is `own`.
    pub fn pid(&mut self, process: u32, own: u32) -> u32 {
        let tracks = self.processes.entry(process).or_default();
        *tracks.pid.get_or_insert_with(|| match self.pids.insert(own) {
            true => own,
            false => {
                self.next_pid = self.next_pid.wrapping_add(1);
                let pid = OTHER_PIDS.wrapping_add(self.next_pid);
                self.pids.insert(pid);
                pid
            }
        })
    }

    /// The number of a process's device, and whether it is new. `uuid` is asked for once; 0 is unknown.
    pub fn device(&mut self, process: u32, ordinal: u32, uuid: impl FnOnce() -> [u64; 2]) -> (u32, bool) {
        let tracks = self.processes.entry(process).or_default();
        if let Some(number) = tracks.devices.get(&ordinal) {
            return (*number, false);
        }
        let key = match uuid() {
            [0, 0] => DeviceKey::Ordinal(ordinal),
            uuid => DeviceKey::Uuid(uuid),
        };
        let (number, is_new) = match self.devices.get(&key) {
            Some(number) => (*number, false),
            None if self.devices.len() >= DEVICES_MAX => (ordinal, false),
            None => {
                let free = |number: &u32| !self.device_numbers.contains(number);
                let number = [ordinal].into_iter().chain(0..).find(free).unwrap_or(ordinal);
                self.device_numbers.insert(number);
                self.devices.insert(key, number);
                (number, true)
            }
        };
        tracks.devices.insert(ordinal, number);
        (number, is_new)
    }

    /// The `tid` of a process's stream on a device number, and whether it is new.
    pub fn stream(&mut self, process: u32, device: u32, context: u32, number: u32) -> (u32, bool) {
        let tracks = self.processes.entry(process).or_default();
        let key = [device, context, number];
        if let Some(tid) = tracks.streams.get(&key) {
            return (*tid, false);
        }
        if self.streams.len() >= STREAMS_MAX {
            return (SHARED_STREAM, false);
        }
        let tid = match self.streams.insert((device, number)) {
            true => number,
            false => {
                let tid = OTHER_STREAMS.wrapping_add(self.next_stream);
                self.next_stream = self.next_stream.wrapping_add(1);
                self.streams.insert((device, tid));
                tid
            }
        };
        tracks.streams.insert(key, tid);
        (tid, true)
    }

    /// Frees a process's numbers.
    pub fn process_ends(&mut self, process: u32) {
        let Some(ended) = self.processes.remove(&process) else { return };
        ended.pid.iter().for_each(|pid| _ = self.pids.remove(pid));
        for ([device, ..], tid) in ended.streams {
            self.streams.remove(&(device, tid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid(low: u64) -> impl FnOnce() -> [u64; 2] {
        move || [low, low]
    }

    #[test]
    fn numbers_are_the_programs_own_where_they_are_free() {
        let mut tracks = Tracks::default();
        assert_eq!((tracks.pid(0, 42), tracks.pid(0, 42)), (42, 42));
        assert_eq!(tracks.pid(1, 42), OTHER_PIDS + 1);
        // Both processes see one device only, and each calls it 0.
        assert_eq!(tracks.device(0, 0, uuid(7)), (0, true));
        assert_eq!(tracks.device(1, 0, uuid(8)), (1, true));
        assert_eq!(tracks.device(2, 1, uuid(7)), (0, false));
        assert_eq!(tracks.device(3, 0, uuid(0)), (2, true));
        assert_eq!((tracks.stream(0, 0, 1, 7), tracks.stream(0, 0, 1, 7)), ((7, true), (7, false)));
        assert_eq!(tracks.stream(1, 1, 1, 7), (7, true));
        assert_eq!(tracks.stream(2, 0, 1, 7), (OTHER_STREAMS, true));
        assert_eq!(tracks.stream(0, 0, 2, 7), (OTHER_STREAMS + 1, true));
        tracks.process_ends(0);
        assert_eq!((tracks.pid(4, 42), tracks.stream(4, 0, 1, 7)), (42, (7, true)));
    }

    #[test]
    fn streams_are_bounded() {
        let mut tracks = Tracks::default();
        (0..STREAMS_MAX as u32).for_each(|number| _ = tracks.stream(0, 0, 1, number));
        assert_eq!(tracks.stream(0, 0, 1, u32::MAX), (SHARED_STREAM, false));
        assert_eq!(tracks.stream(0, 0, 1, 5), (5, false));
    }
}
