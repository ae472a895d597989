//! The records of CUPTI 13.0, byte for byte.
//!
//! Only the fields that the simulation knows are written; the rest is zero, which
//! in every one of these records means unknown or absent.

use gputrace_sim::activity::{Activity, GRAPH_TRACE, KERNEL, MEMCPY, MEMCPY_PEER, MEMSET};

/// Room for the largest record.
pub const LARGEST: usize = 216;
/// `CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL`.
const CONCURRENT_KERNEL: u32 = 10;

/// Size of a record of `kind`, for the kinds that are ever written.
pub fn size_of_kind(kind: u32) -> Option<usize> {
    Some(match kind {
        MEMCPY => 96,
        MEMSET => 88,
        KERNEL | CONCURRENT_KERNEL => 216,
        MEMCPY_PEER => 96,
        GRAPH_TRACE => 56,
        _ => return None,
    })
}

/// Where a record of `kind` keeps start and end.
pub fn times_at(kind: u32) -> (usize, usize) {
    if kind == GRAPH_TRACE { (8, 16) } else { (16, 24) }
}

struct Bytes([u8; LARGEST]);

impl Bytes {
    fn put<const N: usize>(&mut self, at: usize, value: [u8; N]) {
        self.0[at..at + N].copy_from_slice(&value);
    }

    fn byte(&mut self, at: usize, value: u8) {
        self.put(at, [value]);
    }

    fn half(&mut self, at: usize, value: u32) {
        self.put(at, (value as u16).to_ne_bytes());
    }

    fn word(&mut self, at: usize, value: u32) {
        self.put(at, value.to_ne_bytes());
    }

    fn words(&mut self, at: usize, values: &[u32]) {
        for (index, value) in values.iter().enumerate() {
            self.word(at + 4 * index, *value);
        }
    }

    fn long(&mut self, at: usize, value: u64) {
        self.put(at, value.to_ne_bytes());
    }
}

/// Builds the record of an activity, of `kind`, with times as the client is to see them.
pub fn build(activity: &Activity, kind: u32, start: u64, end: u64) -> [u8; LARGEST] {
    let mut bytes = Bytes([0; LARGEST]);
    bytes.word(0, kind);
    let (start_at, end_at) = times_at(kind);
    bytes.long(start_at, start);
    bytes.long(end_at, end);
    let identity = [activity.device, activity.context, activity.stream];
    match kind {
        MEMCPY | MEMCPY_PEER => {
            let kinds = [activity.copy_kind, activity.source_kind, activity.target_kind, activity.flags];
            bytes.put(4, kinds);
            bytes.long(8, activity.bytes);
            bytes.words(32, &identity);
            if kind == MEMCPY {
                bytes.word(44, activity.correlation);
                bytes.long(64, activity.graph_node);
                bytes.word(72, activity.graph);
                bytes.long(88, 1);
            } else {
                let sides = [
                    activity.source_device,
                    activity.source_context,
                    activity.target_device,
                    activity.target_context,
                    activity.correlation,
                ];
                bytes.words(44, &sides);
                bytes.long(72, activity.graph_node);
                bytes.word(80, activity.graph);
            }
        }
        MEMSET => {
            bytes.word(4, activity.value);
            bytes.long(8, activity.bytes);
            bytes.words(32, &identity);
            bytes.word(44, activity.correlation);
            bytes.half(48, activity.flags.into());
            bytes.half(50, activity.source_kind.into());
            bytes.long(64, activity.graph_node);
            bytes.word(72, activity.graph);
        }
        GRAPH_TRACE => {
            bytes.word(4, activity.correlation);
            bytes.words(24, &[activity.device, activity.graph, activity.context, activity.stream]);
            bytes.words(48, &[activity.device, activity.context]);
        }
        _ => {
            bytes.half(6, activity.registers);
            bytes.long(32, end);
            bytes.words(40, &identity);
            bytes.words(52, &activity.grid);
            bytes.words(64, &activity.block);
            bytes.words(76, &[activity.static_shared_bytes, activity.dynamic_shared_bytes]);
            bytes.word(84, activity.local_bytes_per_thread);
            bytes.word(92, activity.correlation);
            bytes.long(96, activity.grid_id);
            bytes.long(104, activity.name as u64);
            bytes.byte(136, activity.launch_type as u8);
            bytes.word(140, activity.static_shared_bytes + activity.dynamic_shared_bytes);
            bytes.long(144, activity.graph_node);
            bytes.word(156, activity.graph);
            bytes.words(176, &activity.cluster);
        }
    }
    bytes.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn long(bytes: &[u8], at: usize) -> u64 {
        u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn kernel_lands_where_cupti_puts_it() {
        let mut activity = Activity::new(CONCURRENT_KERNEL);
        activity.registers = 40;
        activity.grid = [7, 8, 9];
        activity.correlation = 77;
        activity.graph = 5;
        activity.cluster = [2, 1, 1];
        let bytes = build(&activity, CONCURRENT_KERNEL, 1000, 2000);
        assert_eq!((word(&bytes, 0), long(&bytes, 16), long(&bytes, 24)), (10, 1000, 2000));
        assert_eq!(bytes[6..8], 40u16.to_ne_bytes());
        assert_eq!((word(&bytes, 52), word(&bytes, 60), word(&bytes, 92)), (7, 9, 77));
        assert_eq!((word(&bytes, 156), word(&bytes, 176)), (5, 2));
    }

    #[test]
    fn peer_copy_is_not_laid_out_as_a_copy() {
        let mut activity = Activity::new(MEMCPY_PEER);
        activity.bytes = 64;
        activity.correlation = 3;
        activity.target_device = 1;
        let bytes = build(&activity, MEMCPY_PEER, 1, 2);
        assert_eq!((long(&bytes, 8), word(&bytes, 52), word(&bytes, 60)), (64, 1, 3));
        let bytes = build(&activity, MEMCPY, 1, 2);
        assert_eq!(word(&bytes, 44), 3);
    }
}
