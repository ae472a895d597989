//! Blocks on events made by hand.

use std::time::Instant;

use gputrace_wire::block::Block;
use gputrace_wire::call::{Detail, Memory, MemoryState, memory, operation};
use gputrace_wire::cell::kind;

use super::*;
use crate::model::block::{BlockEvent, BlockWhat};
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

#[derive(Default)]
struct Allocator {
    ledger: MemoryLedger,
    definitions: Definitions,
    allocated: u64,
    now_ns: u64,
}

impl Allocator {
    fn change(&mut self, address: u64, bytes: i64) {
        self.now_ns += 10;
        self.allocated = self.allocated.saturating_add_signed(bytes);
        let (allocated_bytes, ticks) = (self.allocated, 0);
        let block =
            Block { device: 0, ticks, allocated_bytes, stack: 3, reserved_bytes: 1 << 40, bytes, address };
        let what = BlockWhat::Changed(block);
        self.ledger.block(&BlockEvent { process: 0, thread: 1, at_ns: self.now_ns, what });
    }

    fn call(&mut self, kind: u16, detail: Detail) {
        self.now_ns += 10;
        let call = HostCall { kind, start_ns: self.now_ns, api: 7, detail, ..HostCall::default() };
        self.ledger.add(&call, &self.definitions);
    }

    fn end(&mut self) -> &Blocks {
        self.ledger.process_ends(0, self.now_ns);
        self.ledger.blocks(0).unwrap()
    }
}

/// As PyTorch does with expandable segments: a range of addresses that grows by pieces.
#[test]
fn pieces_of_mapped_memory_are_one_segment() {
    let mut allocator = Allocator::default();
    for piece in 0..3u64 {
        let what =
            Memory { memory: memory::VIRTUAL, bytes: 0x2000, address: 0x70 + piece, ..Memory::default() };
        allocator.call(kind::ALLOC, Detail::Memory(what));
        let mapped = MemoryState {
            operation: operation::MAP,
            object: 0x10_0000 + 0x2000 * piece,
            value: 0x70 + piece,
            units: 0,
        };
        allocator.call(kind::MEMORY, Detail::MemoryState(mapped));
    }
    // Over the first two pieces, and in the third.
    allocator.change(0x10_0000, 0x3000);
    allocator.change(0x10_4800, 0x800);
    let segments = allocator.end().at_peak.clone().unwrap();
    assert_eq!((segments.count, segments.bytes, segments.outside.count), (1, 0x6000, 0));
    assert_eq!((segments.free_bytes, segments.free_pieces, segments.largest_free_bytes), (0x2800, 2, 0x1800));
}

/// Each cycle ends a new peak, so looking at all blocks in each would take hours.
#[test]
fn segments_at_many_small_peaks_take_linear_time() {
    let mut allocator = Allocator::default();
    let what = Memory { memory: memory::DEVICE, bytes: 1 << 40, address: 0x1000, ..Memory::default() };
    allocator.call(kind::ALLOC, Detail::Memory(what));
    let begin = Instant::now();
    let kept = 100_000u64;
    for number in 0..kept {
        allocator.change(0x1000 + 0x1000 * number, 0x200);
    }
    for cycle in 0..200_000u64 {
        allocator.change(0x1_0000_0000, 0x100 + i64::try_from(cycle).unwrap());
        allocator.change(0x1_0000_0000, -0x100 - i64::try_from(cycle).unwrap());
    }
    let blocks = allocator.end();
    assert!(begin.elapsed().as_secs() < 60, "{:?}", begin.elapsed());
    let (peak, seen) = (blocks.memory.peak, blocks.at_peak.as_ref().unwrap().allocated);
    assert_eq!(peak.count, kept + 1);
    assert!(seen.bytes <= peak.bytes && seen.bytes >= peak.bytes - peak.bytes / 64, "{seen:?} of {peak:?}");
    assert_eq!(blocks.devices().next().map(|(_, device)| device.differences), Some(0));
}

#[test]
fn live_blocks_count_against_the_bound_of_live_allocations() {
    let mut allocator = Allocator::default();
    let before = allocator.ledger.budget_left();
    for number in 0..1_000u64 {
        allocator.change(0x1000 * (number + 1), 0x200);
    }
    allocator.ledger.catch_up(0, u64::MAX);
    assert_eq!(before - allocator.ledger.budget_left(), 1_000);
    allocator.end();
    assert_eq!(allocator.ledger.budget_left(), before);
}

#[test]
fn blocks_of_invented_devices_do_not_fill_the_memory() {
    let mut allocator = Allocator::default();
    for device in 0..10_000 {
        let block = Block { device, bytes: i64::MIN, allocated_bytes: u64::MAX, ..Block::default() };
        let what = BlockWhat::Changed(block);
        allocator.ledger.block(&BlockEvent { process: 0, thread: 1, at_ns: device.into(), what });
    }
    let blocks = allocator.end();
    assert_eq!((blocks.devices().count(), blocks.beyond), (64, 10_000 - 64));
    assert_eq!(blocks.memory.unmatched.unknown, 10_000);
}
