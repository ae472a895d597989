//! The collector's end of a ring whose positions, headers and cells are anything.
//!
//! Input: capacity in bits (u8), limit (u8), head, tail, a later head (u64 each), the cells.
#![no_main]

use gputrace_fuzz::Input;
use gputrace_wire::call::Call;
use gputrace_wire::cell::{CELL_WORDS, Cell, flag, kind};
use gputrace_wire::clock::Anchor;
use gputrace_wire::clock::mark::{EpochBegin, ThreadBegin};
use gputrace_wire::device::{DeviceCopy, DeviceFill, DeviceGraph, Kernel};
use gputrace_wire::ring::{Consumer, Ring};
use libfuzzer_sys::fuzz_target;
use std::sync::atomic::{AtomicU64, Ordering};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let capacity = 1usize << (input.u8() % 6);
    let limit = u64::from(input.u8());
    let (head, tail, later) = (AtomicU64::new(input.u64()), AtomicU64::new(input.u64()), input.u64());
    let words = input.words(capacity * CELL_WORDS);
    let ring = Ring::new(&head, &tail, &words).expect("a power of two");
    let mut consumer = Consumer::new(ring);

    for head_then in [head.load(Ordering::Relaxed), later] {
        head.store(head_then, Ordering::Relaxed);
        let mut cells = Vec::new();
        match consumer.read(limit, |cell| cells.push(cell)) {
            Ok(count) => {
                assert!(cells.len() as u64 == count && count <= limit.min(capacity as u64));
                consumer.release(count);
                entries(&cells);
            }
            Err(damaged) => assert!(cells.is_empty() && damaged.head == head_then),
        }
    }
});

/// Steps as every reader does: by the first cell's own word for its length, checked.
fn entries(mut cells: &[Cell]) {
    while let Some(first) = cells.first() {
        let length = usize::from(first.cells());
        let Some((entry, rest)) = cells.split_at_checked(length) else { return };
        if entry.is_empty() {
            return;
        }
        decode(entry);
        cells = rest;
    }
}

/// What was read and written again must read the same.
fn decode(entry: &[Cell]) {
    let first = &entry[0];
    assert_eq!(Cell::from_bytes(&first.to_bytes()), *first);
    if let Some(call) = Call::from_cell(first) {
        let mut again = Call::from_cell(&call.to_cell()).expect("the kind stands");
        // A hostile writer may call a short duration long.
        again.flags = again.flags & !flag::LONG_DURATION | call.flags & flag::LONG_DURATION;
        assert_eq!(again, call);
    }
    match (first.kind(), entry) {
        (kind::DEVICE_KERNEL, [first, second, ..]) => {
            let kernel = Kernel::from_cells(first, second);
            let [one, two] = kernel.to_cells();
            assert_eq!(Kernel::from_cells(&one, &two), kernel);
            let execution = kernel.execution;
            assert!(!execution.has_timing() || execution.end_ns.checked_sub(execution.start_ns).is_some());
        }
        (kind::DEVICE_COPY, _) => {
            let copy = DeviceCopy::from_cell(first);
            assert_eq!(DeviceCopy::from_cell(&copy.to_cell()), copy);
        }
        (kind::DEVICE_FILL, _) => {
            let fill = DeviceFill::from_cell(first);
            assert_eq!(DeviceFill::from_cell(&fill.to_cell()), fill);
        }
        (kind::DEVICE_GRAPH, _) => {
            let graph = DeviceGraph::from_cell(first);
            assert_eq!(DeviceGraph::from_cell(&graph.to_cell()), graph);
        }
        (kind::ANCHOR, _) => {
            let anchor = Anchor::from_cell(first);
            assert_eq!(Anchor::from_cell(&anchor.to_cell()), anchor);
        }
        (kind::THREAD_BEGIN, _) => {
            let begin = ThreadBegin::from_cell(first);
            assert_eq!(ThreadBegin::from_cell(&begin.to_cell()), begin);
        }
        (kind::EPOCH_BEGIN, _) => {
            let begin = EpochBegin::from_cell(first);
            assert_eq!(EpochBegin::from_cell(&begin.to_cell()), begin);
        }
        _ => {}
    }
}
