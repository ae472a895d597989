//! The ledger on calls made by hand.

mod bad_input;

use gputrace_wire::call::{Detail, Memory, MemoryState, memory, operation};
use gputrace_wire::cell::kind;

use super::*;
use crate::batch::Definition;
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

const DESTROY: u32 = 3;
const END_NS: u64 = 1 << 40;

#[derive(Default)]
struct MemoryProgram {
    ledger: MemoryLedger,
    definitions: Definitions,
    thread: u32,
    stack: u32,
}

impl MemoryProgram {
    fn at(&mut self, stack: u32) -> &mut MemoryProgram {
        self.stack = stack;
        self
    }

    fn call(&mut self, kind: u16, what: Memory, start_ns: u64, status: u16) {
        let call = HostCall {
            kind,
            thread: self.thread,
            stack: self.stack,
            api: 7,
            start_ns,
            duration_ns: 1,
            status,
            detail: Detail::Memory(what),
            ..HostCall::default()
        };
        self.ledger.add(&call, &self.definitions);
    }

    /// An allocation that returns at that time.
    fn allocate(&mut self, memory: u8, address: u64, bytes: u64, at_ns: u64) {
        self.call(kind::ALLOC, Memory { memory, bytes, address, ..Memory::default() }, at_ns - 1, 0);
    }

    fn free(&mut self, address: u64, at_ns: u64) {
        self.call(kind::FREE, Memory { memory: memory::DEVICE, address, ..Memory::default() }, at_ns, 0);
    }

    fn end_context(&mut self, start_ns: u64) {
        let record = Definition {
            kind: gputrace_wire::definition::kind::API,
            id: DESTROY,
            fields: vec![],
            text: b"cuCtxDestroy_v2".to_vec(),
        };
        self.definitions.add(&record);
        let detail = Detail::Other { operation: gputrace_wire::call::operation::DESTROY, value: 1 };
        let call = HostCall { kind: kind::CALL, api: DESTROY, start_ns, detail, ..HostCall::default() };
        self.ledger.add(&call, &self.definitions);
    }

    fn end(&mut self) -> &ProcessMemory {
        self.ledger.process_ends(0, END_NS);
        self.ledger.process(0).unwrap()
    }
}

fn held(process: &ProcessMemory, stack: u32, moment: Moment) -> (u64, u64) {
    let site = process.sites().iter().find(|site| site.stack == stack).unwrap();
    let held = process.held(site, moment);
    (held.count, held.bytes)
}

#[test]
fn peak_has_who_held_it_then() {
    let mut program = MemoryProgram::default();
    program.at(1).allocate(memory::DEVICE, 0x1000, 100, 10);
    program.at(2).allocate(memory::POOL, 0x2000, 50, 20);
    program.free(0x1000, 30);
    program.at(3).allocate(memory::MANAGED, 0x3000, 20, 40);
    // Memory of the host is no part of the peak.
    program.at(4).allocate(memory::PINNED, 0x9000, 10_000, 50);
    let process = program.end();
    assert_eq!((process.peak, process.peak_ns), (HeldMemory { count: 2, bytes: 150 }, 20));
    assert_eq!([1, 2, 3].map(|stack| held(process, stack, Moment::Peak)), [(1, 100), (1, 50), (0, 0)]);
    assert_eq!([1, 2, 3].map(|stack| held(process, stack, Moment::End)), [(0, 0), (1, 50), (1, 20)]);
    assert_eq!(process.on_device, HeldMemory { count: 2, bytes: 70 });
    assert_eq!(process.unfreed(), HeldMemory { count: 3, bytes: 10_070 });
    let oldest: Vec<_> =
        process.sites().iter().map(|site| site.at_end.as_ref().map(|end| end.oldest_ns)).collect();
    assert_eq!(oldest, [None, Some(20), Some(40), Some(50)]);
}

#[test]
fn most_live_bytes_of_a_stack_are_its_own() {
    let mut program = MemoryProgram::default();
    for turn in 0..3u64 {
        // One stack holds two allocations at once, the other one, at another time.
        program.at(1).allocate(memory::DEVICE, 0x1000, 100, 1_000 * turn + 10);
        program.allocate(memory::DEVICE, 0x2000, 20 + turn, 1_000 * turn + 20);
        program.free(0x1000, 1_000 * turn + 30);
        program.free(0x2000, 1_000 * turn + 40);
        program.at(2).allocate(memory::PINNED, 0x3000, 7, 1_000 * turn + 50);
        program.free(0x3000, 1_000 * turn + 60);
    }
    let most: Vec<_> = program.end().sites().iter().map(|site| (site.stack, site.live_max_bytes)).collect();
    assert_eq!(most, [(1, 122), (2, 7)]);
}

#[test]
fn calls_of_several_threads_are_followed_in_the_order_of_their_times() {
    let mut program = MemoryProgram { thread: 2, ..MemoryProgram::default() };
    // Two threads take turns at one address; the ring of the second is read first.
    for turn in 0..1_000u64 {
        program.at(2).allocate(memory::DEVICE, 0x1000, 1, 100 * turn + 60);
        program.free(0x1000, 100 * turn + 80);
    }
    program.thread = 1;
    for turn in 0..1_000u64 {
        program.at(1).allocate(memory::DEVICE, 0x1000, 2, 100 * turn + 10);
        program.free(0x1000, 100 * turn + 30);
    }
    let process = program.end();
    assert_eq!(process.unmatched, UnmatchedFrees::default());
    assert_eq!((process.peak.bytes, process.on_device), (2, HeldMemory::default()));
    let freed: Vec<_> = process.sites().iter().map(|site| (site.stack, site.freed.count)).collect();
    assert_eq!(freed, [(1, 1_000), (2, 1_000)]);
}

#[test]
fn what_is_freed_at_once_is_temporary() {
    let mut program = MemoryProgram::default();
    program.at(1).allocate(memory::DEVICE, 0x1000, 8, 10);
    for turn in 0..5 {
        program.at(2).allocate(memory::DEVICE, 0x2000, 4, 100 + 10 * turn);
        program.free(0x2000, 105 + 10 * turn);
    }
    program.free(0x1000, 900);
    let process = program.end();
    let temporary: Vec<_> = process.sites().iter().map(|site| (site.stack, site.temporary.count)).collect();
    assert_eq!(temporary, [(1, 0), (2, 5)]);
    assert_eq!(process.sites()[1].calls_ns, 10);
}

#[test]
fn live_allocations_are_known_at_the_time_asked_for() {
    for (at_ns, expected) in [(5, (0, 0)), (10, (1, 8)), (29, (2, 24)), (30, (1, 16)), (1_000, (1, 16))] {
        let mut program = MemoryProgram::default();
        program.ledger.ask_at(at_ns - 3);
        program.ledger.process_begins(0, 3, 0);
        program.at(1).allocate(memory::DEVICE, 0x1000, 8, 10);
        program.allocate(memory::DEVICE, 0x2000, 16, 20);
        program.free(0x1000, 30);
        assert_eq!(held(program.end(), 1, Moment::Asked), expected, "{at_ns}");
    }
}

#[test]
fn part_of_a_session_has_its_own_peak_and_leaks() {
    let mut program = MemoryProgram::default();
    program.ledger.ask_part(100, 200);
    program.ledger.process_begins(0, 50, 1_000);
    program.at(1).allocate(memory::DEVICE, 0x1000, 500, 1_010);
    program.allocate(memory::DEVICE, 0x2000, 30, 1_020);
    program.free(0x1000, 1_090);
    program.at(2).allocate(memory::DEVICE, 0x3000, 8, 1_110);
    program.allocate(memory::DEVICE, 0x4000, 9, 1_120);
    program.free(0x3000, 1_130);
    // After the part nothing counts.
    program.free(0x4000, 1_250);
    program.at(3).allocate(memory::DEVICE, 0x5000, 999, 1_260);
    let process = program.end();
    assert_eq!((process.peak, process.peak_ns), (HeldMemory { count: 3, bytes: 47 }, 1_120));
    assert_eq!([1, 2].map(|stack| held(process, stack, Moment::Peak)), [(1, 30), (2, 17)]);
    assert_eq!([1, 2].map(|stack| held(process, stack, Moment::End)), [(1, 30), (1, 9)]);
    let left: Vec<_> =
        process.sites().iter().map(|site| site.at_end.as_ref().map_or(0, |end| end.left.bytes)).collect();
    assert_eq!(left, [0, 9]);
    // Nothing was done in the part: its peak is what is held.
    let mut program = MemoryProgram::default();
    program.ledger.ask_part(100, 200);
    program.ledger.process_begins(0, 50, 1_000);
    program.allocate(memory::DEVICE, 0x1000, 500, 1_010);
    program.free(0x1000, 1_020);
    program.allocate(memory::DEVICE, 0x2000, 30, 1_030);
    assert_eq!(program.end().peak.bytes, 30);
}

#[test]
fn frees_that_match_nothing_are_counted_by_what_they_are() {
    let mut program = MemoryProgram::default();
    program.free(0x7000, 5);
    program.free(0, 6);
    program.allocate(memory::DEVICE, 0x1000, 0x100, 10);
    program.allocate(memory::DEVICE, 0x2000, 0x100, 11);
    program.free(0x2000, 12);
    program.ledger.catch_up(0, 20);
    let refused = |program: &mut MemoryProgram, address| {
        program.call(kind::FREE, Memory { memory: memory::DEVICE, address, ..Memory::default() }, 30, 1);
    };
    refused(&mut program, 0x1080);
    refused(&mut program, 0x2000);
    refused(&mut program, 0x1100);
    let process = program.end();
    assert_eq!(process.unmatched, UnmatchedFrees { unknown: 1, twice: 1, interior: 1, refused: 1 });
    assert_eq!(process.on_device, HeldMemory { count: 1, bytes: 0x100 });
}

#[test]
fn what_ends_with_its_context_is_no_leak() {
    let mut program = MemoryProgram::default();
    program.at(1).allocate(memory::DEVICE, 0x1000, 100, 10);
    // Physical memory belongs to no context.
    program.at(2).allocate(memory::VIRTUAL, 0x1000, 30, 11);
    program.end_context(20);
    program.at(1).allocate(memory::DEVICE, 0x1000, 7, 30);
    let process = program.end();
    assert_eq!((process.contexts_ended, process.unfreed()), (1, HeldMemory { count: 2, bytes: 37 }));
    assert_eq!(process.sites()[0].ended_unfreed, HeldMemory { count: 1, bytes: 100 });
    assert_eq!(process.peak, HeldMemory { count: 2, bytes: 130 });
}

#[test]
fn refusal_keeps_who_held_the_memory() {
    let mut program = MemoryProgram::default();
    for (stack, bytes) in [(1, 10), (2, 300), (3, 20)] {
        program.at(stack).allocate(memory::DEVICE, 0x1000 * u64::from(stack), bytes, 10);
    }
    let much = Memory { memory: memory::DEVICE, bytes: 1 << 40, ..Memory::default() };
    program.at(4).call(kind::ALLOC, much, 1_000, 2);
    // A little of it is not what was asked for.
    program.allocate(memory::DEVICE, 0x9000, 4, 2_000);
    program.call(kind::ALLOC, Memory { bytes: 64, ..much }, 3_000, 2);
    program.free(0x2000, 3_500);
    program.allocate(memory::DEVICE, 0xa000, 64, 4_000);
    // Another error is no lack of memory.
    program.call(kind::ALLOC, much, 5_000, 1);
    let process = program.end();
    let refusals: Vec<_> =
        process.refusals.iter().map(|refusal| (refusal.stack, refusal.bytes, refusal.given_later)).collect();
    assert_eq!(refusals, [(4, 1 << 40, false), (4, 64, true)]);
    let holders: Vec<_> = process.refusals[0]
        .holders
        .iter()
        .map(|(site, held)| (process.sites()[*site].stack, held.bytes))
        .collect();
    assert_eq!(holders, [(2, 300), (3, 20), (1, 10)]);
    assert_eq!((process.refused, process.refusals[0].held.bytes), (2, 330));
}

#[test]
fn tables_are_bounded_and_what_they_do_not_hold_is_counted() {
    let mut program = MemoryProgram::default();
    const MANY: u64 = (1 << 20) + 5;
    for at in 0..MANY {
        program.allocate(memory::DEVICE, 0x100 * (at + 1), 1, 10 + at);
    }
    for stack in 0..(1 << 16) + 5 {
        program.at(stack).allocate(
            memory::PINNED,
            (1 << 60) + u64::from(stack),
            1,
            MANY + 100 + u64::from(stack),
        );
    }
    let process = program.end();
    let live: u64 = process.sites().iter().map(|site| site.live.count).sum();
    assert_eq!((live, process.sites().len()), (1 << 20, 1 << 16));
    assert_eq!(process.not_followed.count, 5 + (1 << 16) + 5);
    // A later process has the room again.
    let call = HostCall {
        process: 1,
        kind: kind::ALLOC,
        detail: Detail::Memory(Memory { memory: memory::DEVICE, bytes: 9, address: 1, ..Memory::default() }),
        ..HostCall::default()
    };
    program.ledger.add(&call, &program.definitions);
    program.ledger.process_ends(1, END_NS);
    assert_eq!(program.ledger.process(1).unwrap().not_followed.count, 1, "sites are kept for the report");
}

fn state(program: &mut MemoryProgram, operation: u8, object: u64, value: u64, start_ns: u64) {
    let detail = Detail::MemoryState(MemoryState { operation, object, value, units: 0 });
    let call =
        HostCall { kind: kind::MEMORY, api: 7, start_ns, duration_ns: 1, detail, ..HostCall::default() };
    program.ledger.add(&call, &program.definitions);
}

#[test]
fn released_memory_is_live_while_it_is_mapped() {
    let mut program = MemoryProgram::default();
    let release = |program: &mut MemoryProgram, handle, at_ns| {
        let what = Memory { memory: memory::VIRTUAL, address: handle, ..Memory::default() };
        program.call(kind::FREE, what, at_ns, 0);
    };
    program.at(1).allocate(memory::VIRTUAL, 5, 100, 10);
    state(&mut program, operation::MAP, 0x1000, 5, 20);
    release(&mut program, 5, 30);
    program.at(2).allocate(memory::VIRTUAL, 6, 10, 40);
    release(&mut program, 6, 50);
    let budget = program.ledger.budget_left();
    state(&mut program, operation::UNMAP, 0x1000, 0x1000, 60);
    program.at(3).allocate(memory::DEVICE, 0x1000, 7, 70);
    let process = program.end();
    assert_eq!((process.peak, process.on_device.bytes), (HeldMemory { count: 2, bytes: 110 }, 7));
    assert_eq!((process.sites()[0].freed.bytes, process.unmatched), (100, UnmatchedFrees::default()));
    assert_eq!(program.ledger.budget_left(), budget, "all that was taken is given back");
}

#[test]
fn imported_handles_are_released_as_others_are() {
    let mut program = MemoryProgram::default();
    let record = Definition {
        kind: gputrace_wire::definition::kind::API,
        id: 7,
        fields: vec![],
        text: b"cuMemImportFromShareableHandle".to_vec(),
    };
    program.definitions.add(&record);
    program.allocate(memory::IMPORTED, 5, 0, 10);
    let what = Memory { memory: memory::VIRTUAL, address: 5, ..Memory::default() };
    program.call(kind::FREE, what, 20, 0);
    let process = program.end();
    assert_eq!((process.unmatched, process.sites()[0].freed.count), (UnmatchedFrees::default(), 1));
    assert_eq!(process.peak.bytes, 0);
}

#[test]
fn device_s_use_is_that_of_the_time_with_the_most() {
    let mut program = MemoryProgram::default();
    program.at(1).allocate(memory::DEVICE, 0x1000, 100, 10);
    state(&mut program, operation::QUERY, 1000, 600, 20);
    program.free(0x1000, 30);
    state(&mut program, operation::QUERY, 1000, 700, 40);
    // Nonsense is not subtracted.
    state(&mut program, operation::QUERY, 5, 1000, 50);
    let observed = program.end().observed.unwrap();
    assert_eq!((observed.used_bytes, observed.accounted_bytes, observed.at_ns), (400, 100, 21));
}

#[test]
fn captured_allocations_are_in_graphs_and_in_no_sum() {
    let mut program = MemoryProgram::default();
    let what = Memory { memory: memory::POOL, bytes: 64, address: 0x5000, ..Memory::default() };
    let call = HostCall {
        kind: kind::ALLOC,
        flags: gputrace_wire::cell::flag::CAPTURED,
        detail: Detail::Memory(what),
        ..HostCall::default()
    };
    program.ledger.add(&call, &program.definitions);
    // What a graph allocated, any call may free.
    program.free(0x5000, 30);
    let process = program.end();
    assert_eq!((process.in_graphs, process.peak.bytes), (HeldMemory { count: 1, bytes: 64 }, 0));
    assert_eq!(process.unmatched, UnmatchedFrees::default());
}
