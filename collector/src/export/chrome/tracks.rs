//! Which numbers stand for processes, devices and streams in the Chrome format, where a track is a `pid` and
//! a `tid`.
//!
//! A process has its process id, a device its ordinal, a stream its number in device records, as PyTorch
//! writes them. Where two have the same, the later one gets another number: two events of a track must not
//! overlap. Processes of one session may share a process id, because the system gives it to one at a time.

use rustc_hash::{FxHashMap, FxHashSet};

/// Streams that have a track of their own at one time; further ones share [`SHARED_STREAM`].
const STREAMS_MAX: usize = 1 << 16;
const SHARED_STREAM: u32 = 999_999;
/// Process ids that are compared.
const PIDS_MAX: usize = 1 << 18;
/// Devices with a number of their own.
const DEVICES_MAX: usize = 1 << 10;
/// Processes of further sessions with one process id get numbers from here on, above every process id.
const OTHER_PIDS: u32 = 10_000_000;
/// Further streams with one number get numbers from here on.
const OTHER_STREAMS: u32 = 1_000_000;
/// By how much an operation may begin before the one in front of it ended, and is then moved: times of the
/// device's clock are mapped, and rounded, one by one.
const OVERLAP_MAX_NS: u64 = 1_000;

#[derive(Debug, Default)]
pub struct ChromeTracks {
    processes: FxHashMap<u32, ChromeProcess>,
    /// By process id: the session that has it, by when it began.
    pids: FxHashMap<u32, u64>,
    devices: FxHashMap<DeviceKey, u32>,
    device_numbers: FxHashSet<u32>,
    /// By device number and `tid`.
    streams: FxHashSet<(u32, u32)>,
    next_pid: u32,
    next_stream: u32,
}

#[derive(Debug, Default)]
struct ChromeProcess {
    pid: Option<u32>,
    devices: FxHashMap<u32, u32>,
    /// By device number, context and number in records: the `tid`, and the end of the latest operation.
    streams: FxHashMap<[u32; 3], (u32, u64)>,
}

/// What identifies a device over all processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum DeviceKey {
    Uuid([u64; 2]),
    /// Of those whose UUID is not known.
    Ordinal(u32),
}

impl ChromeTracks {
    /// The `pid` of a process whose process id is `own`, of the session that began at `session`.
    pub fn pid(&mut self, process: u32, own: u32, session: u64) -> u32 {
        let tracks = self.processes.entry(process).or_default();
        *tracks.pid.get_or_insert_with(|| {
            let has_space = self.pids.len() < PIDS_MAX;
            match self.pids.get(&own) {
                Some(known) if *known != session => {
                    self.next_pid = self.next_pid.wrapping_add(1);
                    OTHER_PIDS.wrapping_add(self.next_pid)
                }
                None if has_space => {
                    self.pids.insert(own, session);
                    own
                }
                _ => own,
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
        if let Some((tid, _)) = tracks.streams.get(&key) {
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
        tracks.streams.insert(key, (tid, 0));
        (tid, true)
    }

    /// When an operation of a stream begins, moved to the end of the one before if it overlaps that by less
    /// than a microsecond.
    pub fn begin_ns(&mut self, process: u32, key: [u32; 3], start_ns: u64, duration_ns: u64) -> u64 {
        let tracks = self.processes.get_mut(&process);
        let Some((_, last_ns)) = tracks.and_then(|tracks| tracks.streams.get_mut(&key)) else {
            return start_ns;
        };
        let overlap_ns = last_ns.saturating_sub(start_ns);
        let start_ns = if overlap_ns <= OVERLAP_MAX_NS { start_ns + overlap_ns } else { start_ns };
        *last_ns = start_ns.saturating_add(duration_ns).max(*last_ns);
        start_ns
    }

    /// Forgets a process. Its numbers stay taken: events of the others may overlap its own.
    pub fn process_ends(&mut self, process: u32) {
        self.processes.remove(&process);
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
        let mut tracks = ChromeTracks::default();
        assert_eq!((tracks.pid(0, 42, 9), tracks.pid(0, 42, 9)), (42, 42));
        assert_eq!(tracks.pid(1, 42, 8), OTHER_PIDS + 1);
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
        assert_eq!((tracks.pid(4, 42, 9), tracks.stream(4, 0, 1, 7)), (42, (OTHER_STREAMS + 2, true)));
    }

    #[test]
    fn operation_that_overlaps_by_a_rounding_is_moved() {
        let mut tracks = ChromeTracks::default();
        tracks.stream(0, 0, 1, 7);
        let mut begin = |start_ns| tracks.begin_ns(0, [0, 1, 7], start_ns, 5_000);
        assert_eq!((begin(100), begin(5_099), begin(20_000)), (100, 5_100, 20_000));
        // This one really runs at the same time.
        assert_eq!(begin(21_000), 21_000);
    }

    #[test]
    fn streams_are_bounded() {
        let mut tracks = ChromeTracks::default();
        (0..STREAMS_MAX as u32).for_each(|number| _ = tracks.stream(0, 0, 1, number));
        assert_eq!(tracks.stream(0, 0, 1, u32::MAX), (SHARED_STREAM, false));
        assert_eq!(tracks.stream(0, 0, 1, 5), (5, false));
    }
}
