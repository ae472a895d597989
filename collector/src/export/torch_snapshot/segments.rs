//! The segments that are live at the end, and what they are divided into.

use std::collections::BTreeSet;

use super::address;
use super::history::{MemoryHistory, MemoryStep};
use crate::memory::{BLOCK, Space};

/// A driver allocation, or pieces of mapped memory that follow each other.
pub(super) struct SnapshotSegment {
    pub address: u64,
    pub bytes: u64,
    pub is_expandable: bool,
    pub made: MemoryStep,
    /// From its begin to its end, without a gap.
    pub pieces: Vec<SegmentPiece>,
}

/// A block, or memory between blocks.
pub(super) struct SegmentPiece {
    pub address: u64,
    pub bytes: u64,
    /// How it was given out, if it is.
    pub made: Option<MemoryStep>,
}

impl SnapshotSegment {
    pub fn allocated_bytes(&self) -> u64 {
        self.pieces.iter().filter(|piece| piece.made.is_some()).map(|piece| piece.bytes).sum()
    }
}

/// By address. `blocks` are those of a caching allocator, where they are recorded, and `entries` are what is
/// known of the past.
pub(super) fn of(
    history: &MemoryHistory,
    blocks: Option<&MemoryHistory>,
    entries: &[MemoryStep],
) -> Vec<SnapshotSegment> {
    let mut live: Vec<&MemoryStep> = history.live.values().collect();
    live.sort_by_key(|live| address(live));
    let mut segments: Vec<SnapshotSegment> = Vec::new();
    for live in live {
        let is_expandable = live.mapped_at != 0;
        match segments.last_mut() {
            // Blocks go over the pieces of mapped memory.
            Some(before)
                if blocks.is_some()
                    && before.is_expandable
                    && is_expandable
                    && before.address.checked_add(before.bytes) == Some(address(live)) =>
            {
                before.bytes = before.bytes.saturating_add(live.bytes);
            }
            _ => segments.push(SnapshotSegment {
                address: address(live),
                bytes: live.bytes,
                is_expandable,
                made: *live,
                pieces: Vec::new(),
            }),
        }
    }
    let had: BTreeSet<u64> = entries.iter().filter(|entry| entry.kind == BLOCK).map(address).collect();
    for segment in &mut segments {
        segment.divide(blocks, &had);
    }
    segments
}

impl SnapshotSegment {
    /// `had` are addresses of blocks that were: what never had one is not the caching allocator's, and is in
    /// use as a whole.
    fn divide(&mut self, blocks: Option<&MemoryHistory>, had: &BTreeSet<u64>) {
        let (from, end) = (self.address, self.address.saturating_add(self.bytes));
        let mut at = from;
        let range = (Space::Addresses, from)..(Space::Addresses, end);
        for block in
            blocks.into_iter().flat_map(|blocks| blocks.live.range(range.clone())).map(|(_, block)| block)
        {
            let begin = address(block).max(at);
            if begin > at {
                self.pieces.push(SegmentPiece { address: at, bytes: begin - at, made: None });
            }
            let bytes = block.bytes.min(end - begin);
            self.pieces.push(SegmentPiece { address: begin, bytes, made: Some(*block) });
            at = begin + bytes;
        }
        let is_of_allocator = !self.pieces.is_empty() || had.range(from..end).next().is_some();
        if at < end || self.pieces.is_empty() {
            let made = (!is_of_allocator).then_some(self.made);
            self.pieces.push(SegmentPiece { address: at, bytes: end.saturating_sub(at), made });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Action;
    use super::*;

    fn step(space: Space, address: u64, bytes: u64, mapped_at: u64) -> MemoryStep {
        MemoryStep {
            at_ns: 1,
            action: Action::Allocated,
            key: Some((space, address)),
            kind: 1,
            bytes,
            mapped_at,
            stack: 0,
            api: 0,
            held_bytes: 0,
        }
    }

    fn history(steps: &[MemoryStep]) -> MemoryHistory {
        let mut history = MemoryHistory::default();
        history.live.extend(steps.iter().map(|step| (step.key.unwrap(), *step)));
        history
    }

    fn pieces(segment: &SnapshotSegment) -> Vec<(u64, u64, bool)> {
        segment.pieces.iter().map(|piece| (piece.address, piece.bytes, piece.made.is_some())).collect()
    }

    #[test]
    fn segments_are_divided_into_blocks_and_what_is_between() {
        let driver = history(&[
            step(Space::Addresses, 0x1000, 0x1000, 0),
            step(Space::Addresses, 0x8000, 0x1000, 0),
            step(Space::Addresses, 0xa000, 0x1000, 0),
            step(Space::Handles, 7, 0x1000, 0x2_0000),
            step(Space::Handles, 8, 0x1000, 0x2_1000),
        ]);
        let blocks = history(&[
            step(Space::Addresses, 0x1000, 0x100, 0),
            step(Space::Addresses, 0x1800, 0x800, 0),
            step(Space::Addresses, 0x2_0800, 0x1000, 0),
        ]);
        let past = [MemoryStep { kind: BLOCK, ..step(Space::Addresses, 0x8400, 0x100, 0) }];
        let found = of(&driver, Some(&blocks), &past);
        let expected: [&[(u64, u64, bool)]; 4] = [
            &[(0x1000, 0x100, true), (0x1100, 0x700, false), (0x1800, 0x800, true)],
            &[(0x8000, 0x1000, false)],
            &[(0xa000, 0x1000, true)],
            &[(0x2_0000, 0x800, false), (0x2_0800, 0x1000, true), (0x2_1800, 0x800, false)],
        ];
        assert_eq!(found.iter().map(pieces).collect::<Vec<_>>(), expected);
        assert_eq!(
            found.iter().map(|segment| segment.allocated_bytes()).sum::<u64>(),
            0x900 + 0x1000 + 0x1000
        );
        // Without blocks each allocation is one.
        let whole = of(&driver, None, &[]);
        assert!(whole.len() == 5 && whole.iter().all(|segment| pieces(segment)[0].2));
    }

    #[test]
    fn blocks_that_overlap_or_leave_their_segment_are_cut() {
        let driver = history(&[step(Space::Addresses, 0x1000, 0x1000, 0)]);
        let blocks =
            history(&[step(Space::Addresses, 0x1000, 0x900, 0), step(Space::Addresses, 0x1800, u64::MAX, 0)]);
        let found = of(&driver, Some(&blocks), &[]);
        assert_eq!(pieces(&found[0]), [(0x1000, 0x900, true), (0x1900, 0x700, true)]);
    }
}
