//! A caching allocator's segments at one moment: how much of each is given out, and in which pieces the rest
//! is.

use std::collections::BTreeMap;

use super::held_memory::HeldMemory;
use super::live::Live;

/// Segments that are kept one by one: those with the most that is not given out.
const SEGMENTS_KEPT: usize = 64;

/// A driver allocation, or mapped memory without a gap, with at least one block in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSegment {
    pub address: u64,
    pub bytes: u64,
    pub allocated: HeldMemory,
    /// The largest piece that is not given out, and how many pieces there are.
    pub largest_free_bytes: u64,
    pub free_pieces: u64,
}

impl BlockSegment {
    pub fn free_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.allocated.bytes)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockSegments {
    pub at_ns: u64,
    /// All blocks, those outside of any known segment too.
    pub allocated: HeldMemory,
    /// Segments with blocks, and their bytes.
    pub count: u64,
    pub bytes: u64,
    pub free_bytes: u64,
    pub free_pieces: u64,
    pub largest_free_bytes: u64,
    /// Blocks in no known segment, whose driver allocation was made before tracing.
    pub outside: HeldMemory,
    /// The one with the most free bytes first.
    pub kept: Vec<BlockSegment>,
}

impl BlockSegments {
    /// `ranges` are driver allocations from their first address to the one after them, in that order, and do
    /// not overlap.
    pub(super) fn new(
        at_ns: u64,
        ranges: impl IntoIterator<Item = (u64, u64)>,
        blocks: &BTreeMap<u64, Live>,
    ) -> BlockSegments {
        let mut found = BlockSegments { at_ns, ..BlockSegments::default() };
        let mut segments = Vec::new();
        for (address, end) in ranges {
            if end <= address {
                continue;
            }
            let mut segment = BlockSegment {
                address,
                bytes: end - address,
                allocated: HeldMemory::default(),
                largest_free_bytes: 0,
                free_pieces: 0,
            };
            let mut free_from = address;
            let free = |segment: &mut BlockSegment, piece: u64| {
                segment.free_pieces += u64::from(piece > 0);
                segment.largest_free_bytes = segment.largest_free_bytes.max(piece);
            };
            for (at, block) in blocks.range(address..end) {
                segment.allocated.add(HeldMemory::one(block.bytes()));
                free(&mut segment, at.saturating_sub(free_from));
                free_from = free_from.max(at.saturating_add(block.bytes()));
            }
            if segment.allocated.count == 0 {
                continue;
            }
            free(&mut segment, end.saturating_sub(free_from));
            found.count += 1;
            found.bytes = found.bytes.saturating_add(segment.bytes);
            found.allocated.add(segment.allocated);
            found.free_bytes = found.free_bytes.saturating_add(segment.free_bytes());
            found.free_pieces += segment.free_pieces;
            found.largest_free_bytes = found.largest_free_bytes.max(segment.largest_free_bytes);
            segments.push(segment);
        }
        let mut all = HeldMemory::default();
        blocks.values().for_each(|block| all.add(HeldMemory::one(block.bytes())));
        found.outside = HeldMemory {
            count: all.count.saturating_sub(found.allocated.count),
            bytes: all.bytes.saturating_sub(found.allocated.bytes),
        };
        found.allocated = all;
        segments.sort_by_key(|segment| (std::cmp::Reverse(segment.free_bytes()), segment.address));
        segments.truncate(SEGMENTS_KEPT);
        found.kept = segments;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_in_pieces_between_blocks() {
        let block = |bytes| Live::new(bytes, 0, 0);
        let blocks = BTreeMap::from([
            (0x1000, block(0x100)),
            (0x1400, block(0x200)),
            (0x1600, block(0x100)),
            (0x9000, block(7)),
        ]);
        let ranges = [(0x1000, 0x2000), (0x3000, 0x3000), (0x4000, 0x5000)];
        let found = BlockSegments::new(5, ranges, &blocks);
        let held = |count, bytes| HeldMemory { count, bytes };
        assert_eq!((found.count, found.bytes, found.outside), (1, 0x1000, held(1, 7)));
        assert_eq!((found.allocated, found.at_ns), (held(4, 0x407), 5));
        let kept = BlockSegment {
            address: 0x1000,
            bytes: 0x1000,
            allocated: held(3, 0x400),
            largest_free_bytes: 0x900,
            free_pieces: 2,
        };
        assert_eq!((&found.kept[..], found.free_bytes, found.free_pieces), (&[kept][..], 0xc00, 2));
    }

    #[test]
    fn block_that_is_longer_than_its_segment_leaves_nothing_free() {
        let blocks = BTreeMap::from([(0x1000, Live::new(u64::MAX, 0, 0)), (0x1800, Live::new(1, 0, 0))]);
        let found = BlockSegments::new(0, [(0x1000, 0x2000)], &blocks);
        assert_eq!((found.free_bytes, found.largest_free_bytes, found.free_pieces), (0, 0, 0));
    }

    #[test]
    fn of_many_segments_those_with_the_most_free_are_kept() {
        let blocks: BTreeMap<u64, Live> =
            (1..1000u64).map(|number| (number << 20, Live::new(number, 0, 0))).collect();
        let ranges = (1..1000u64).map(|number| (number << 20, (number << 20) + (1 << 16)));
        let found = BlockSegments::new(0, ranges, &blocks);
        assert_eq!((found.count, found.kept.len()), (999, SEGMENTS_KEPT));
        assert_eq!(found.kept[0].address, 1 << 20);
    }
}
