//! Calls that make no sense, and calls of which a part is missing: what is known stays right, the rest is
//! counted.

use proptest::prelude::*;

use super::*;

#[test]
fn allocation_of_no_bytes_is_an_allocation() {
    let mut program = MemoryProgram::default();
    program.at(1).allocate(memory::DEVICE, 0x1000, 0, 10);
    program.allocate(memory::DEVICE, 0x2000, 0, 11);
    program.free(0x1000, 20);
    // The driver refuses others: they are no allocations.
    program.call(kind::ALLOC, Memory { memory: memory::DEVICE, ..Memory::default() }, 30, 1);
    let process = program.end();
    assert_eq!((process.sites()[0].allocated.count, process.on_device.count), (2, 1));
    assert_eq!((process.peak.bytes, process.sizes.iter().collect::<Vec<_>>()), (0, vec![(0, 2)]));
}

#[test]
fn size_that_is_not_known_is_counted_and_not_made_up() {
    let mut program = MemoryProgram::default();
    let what = Memory { memory: memory::ARRAY, address: 5, is_size_unknown: true, ..Memory::default() };
    program.call(kind::ALLOC, what, 10, 0);
    let process = program.end();
    assert_eq!((process.sizes_unknown, process.on_device), (1, HeldMemory { count: 1, bytes: 0 }));
}

#[test]
fn free_after_the_context_s_end_changes_nothing() {
    let mut program = MemoryProgram::default();
    program.at(1).allocate(memory::DEVICE, 0x1000, 100, 10);
    program.allocate(memory::IMPORTED, 0x5000, 0, 11);
    program.end_context(20);
    // One that the driver refuses, and one that it accepts, which is of memory from before or unseen.
    program.ledger.catch_up(0, 25);
    program.call(kind::FREE, Memory { memory: memory::DEVICE, address: 0x1000, ..Memory::default() }, 30, 1);
    program.free(0x1000, 40);
    let process = program.end();
    assert_eq!((process.on_device, process.sites()[0].freed.count), (HeldMemory::default(), 0));
    assert_eq!(process.unmatched, UnmatchedFrees { unknown: 1, refused: 1, ..UnmatchedFrees::default() });
    assert!(process.sites().iter().all(|site| site.live.count == 0 && site.ended_unfreed.count == 1));
}

#[test]
fn memory_whose_free_is_pending_may_be_given_to_another_thread() {
    let mut program = MemoryProgram::default();
    program.at(1).allocate(memory::POOL, 0x1000, 100, 10);
    // The free lasts until 80. Meanwhile another thread, whose ring was read before, gets the address.
    program.thread = 2;
    program.at(2).allocate(memory::POOL, 0x1000, 30, 50);
    program.thread = 1;
    let what = Memory { memory: memory::POOL, address: 0x1000, ..Memory::default() };
    program.call(kind::FREE, what, 20, 0);
    let process = program.end();
    assert_eq!([1, 2].map(|stack| held(process, stack, Moment::End)), [(0, 0), (1, 30)]);
    assert_eq!(process.sites().iter().map(|site| site.ended_unfreed.count).sum::<u64>(), 0);
    assert_eq!((process.unmatched, process.peak.bytes), (UnmatchedFrees::default(), 100));
}

#[test]
fn entries_that_were_lost_are_not_made_up() {
    let mut program = MemoryProgram::default();
    // The free of the first was lost, as the address is given again; so was the allocation of 0x2000.
    program.at(1).allocate(memory::DEVICE, 0x1000, 100, 10);
    program.at(2).allocate(memory::DEVICE, 0x1000, 30, 20);
    program.free(0x2000, 30);
    // Of a mapping that is not known, and of a handle that nobody gave.
    state(&mut program, operation::UNMAP, 0x9000, 0x1000, 40);
    state(&mut program, operation::RETAIN, 0x9000, 77, 41);
    program.call(kind::FREE, Memory { memory: memory::VIRTUAL, address: 77, ..Memory::default() }, 50, 0);
    let process = program.end();
    assert_eq!(process.sites()[0].ended_unfreed, HeldMemory { count: 1, bytes: 100 });
    assert_eq!((process.on_device.bytes, process.peak.bytes), (30, 100));
    assert_eq!(process.unmatched, UnmatchedFrees { unknown: 2, ..UnmatchedFrees::default() });
}

#[test]
fn memory_opened_twice_is_open_until_it_was_closed_twice() {
    let mut program = MemoryProgram::default();
    let close = |program: &mut MemoryProgram, at_ns| {
        let what = Memory { memory: memory::IMPORTED, address: 0x5000, ..Memory::default() };
        program.call(kind::FREE, what, at_ns, 0);
    };
    program.at(1).allocate(memory::IMPORTED, 0x5000, 0, 10);
    program.at(2).allocate(memory::IMPORTED, 0x5000, 0, 11);
    let budget = program.ledger.budget_left();
    close(&mut program, 20);
    program.ledger.catch_up(0, 25);
    let process = program.ledger.process(0).unwrap();
    assert_eq!([1, 2].map(|stack| held(process, stack, Moment::End)), [(1, 0), (0, 0)]);
    close(&mut program, 30);
    program.at(3).allocate(memory::IMPORTED, 0x5000, 0, 40);
    close(&mut program, 50);
    // Once more than it was opened.
    close(&mut program, 60);
    let process = program.end();
    assert!(process.sites().iter().all(|site| site.live.count == 0 && site.freed.count == 1));
    assert_eq!(process.unmatched, UnmatchedFrees { unknown: 1, ..UnmatchedFrees::default() });
    assert!(program.ledger.budget_left() >= budget);
}

#[test]
fn pools_of_several_devices_are_several() {
    use gputrace_wire::definition::kind as of;
    let mut program = MemoryProgram::default();
    let mut define = |kind, id, fields: Vec<u64>| {
        program.definitions.add(&Definition { kind, id, fields, text: vec![] });
    };
    // Two devices with a context and a stream each.
    for device in 0..2u32 {
        define(of::DEVICE, 10 + device, vec![device.into()]);
        define(of::CONTEXT, 20 + device, vec![1, (10 + device).into()]);
        define(of::STREAM, 30 + device, vec![1, (20 + device).into()]);
    }
    let allocate = |program: &mut MemoryProgram, device: u32, address, bytes, start_ns| {
        let detail = Detail::Memory(Memory { memory: memory::POOL, bytes, address, ..Memory::default() });
        let stream = 30 + device;
        let call = HostCall { kind: kind::ALLOC, stream, start_ns, detail, ..HostCall::default() };
        program.ledger.add(&call, &program.definitions);
    };
    // The second device's pool is replaced; the first device's is not.
    allocate(&mut program, 0, 0x1000, 1, 10);
    allocate(&mut program, 1, 0x2000, 2, 20);
    state(&mut program, operation::CREATE, 0x77, 0, 30);
    state(&mut program, operation::SET_CURRENT, 0x77, 2, 40);
    allocate(&mut program, 0, 0x3000, 4, 50);
    allocate(&mut program, 1, 0x4000, 8, 60);
    let pools = program.end().pools();
    let found: Vec<_> =
        pools.map(|pool| (pool.is_default, pool.device, pool.handle, pool.used.bytes)).collect();
    let expected = [(true, Some(0), 0, 5), (true, Some(1), 0, 2), (false, Some(1), 0x77, 8)];
    assert_eq!(found, expected);
}

/// Any call for memory, of few addresses, so that they meet.
fn any_call() -> impl Strategy<Value = (u16, Detail, u64, u16)> {
    let number = || prop_oneof![0u64..6, Just(u64::MAX), any::<u64>()];
    let what = (any::<bool>(), 0u8..12, number(), number(), 0u32..3).prop_map(
        |(frees, memory, bytes, address, pool)| {
            let what = Memory { memory, bytes, address, pool, is_size_unknown: false };
            (if frees { kind::FREE } else { kind::ALLOC }, Detail::Memory(what))
        },
    );
    let state = (0u8..30, number(), number(), any::<u32>()).prop_map(|(operation, object, value, units)| {
        (kind::MEMORY, Detail::MemoryState(MemoryState { operation, object, value, units }))
    });
    (prop_oneof![3 => what, 1 => state], prop_oneof![9 => 0u64..1000, 1 => any::<u64>()], 0u16..3)
        .prop_map(|((kind, detail), at_ns, status)| (kind, detail, at_ns, status))
}

proptest! {
    /// Whatever a trace says, its sums agree with each other.
    #[test]
    fn sums_agree_for_any_calls(calls in proptest::collection::vec(any_call(), 0..60), end_ns: u64) {
        let mut program = MemoryProgram::default();
        let budget = program.ledger.budget_left();
        for (at, (kind, detail, start_ns, status)) in calls.into_iter().enumerate() {
            if at % 17 == 16 {
                program.end_context(start_ns);
            }
            let (thread, stack) = (at as u32 % 3, at as u32 % 5);
            let call =
                HostCall { kind, thread, stack, start_ns, status, detail, duration_ns: 3, ..HostCall::default() };
            program.ledger.add(&call, &program.definitions);
        }
        program.ledger.process_ends(0, end_ns);
        prop_assert_eq!(program.ledger.budget_left(), budget);
        let Some(process) = program.ledger.process(0) else { return Ok(()) };
        for site in process.sites() {
            let gone = site.freed.count + site.ended_unfreed.count;
            prop_assert_eq!(site.allocated.count, gone + site.live.count);
            prop_assert!(site.at_end.as_ref().map_or(0, |end| end.left.count) <= site.live.count && site.temporary.count <= site.freed.count);
        }
        let live: u64 = process.sites().iter().map(|site| site.live.count).sum();
        prop_assert_eq!(live, process.kinds().map(|(_, kind)| kind.live.count).sum::<u64>());
        prop_assert!(process.on_device.count <= live && process.peak.bytes >= process.on_device.bytes);
        let used: u64 = process.pools().map(|pool| pool.used.count).sum();
        prop_assert!(used <= live);
    }
}
