//! Turns a fuzzer's input into a trace: either a decoded file, or batches that no decoder would produce.
//!
//! Input: a mode (u8). Even: the bytes after a trace file's header, as in the `trace_file` target.
//! Odd: batches, each a kind (u8) and then the bytes that `batch` reads for that kind.

use crate::{Input, trace_file_header};
use gputrace_collector::batch::{Batch, Counters, Definition, ProcessBegin, ProcessEnd, SessionBegin};
use gputrace_collector::trace_file::TraceReader;
use gputrace_wire::cell::{CELL_WORDS, Cell, kind};
use std::path::Path;

/// The most cells that are kept of one input. There is a limit, since a small block of a file can
/// hold 65 536 cells.
const CELLS_MAX: usize = 1 << 16;
/// The most cells of one batch.
const BATCH_CELLS_MAX: u8 = 32;

/// The kinds of cells that the model knows. Most cells get one of them, so that the model does not skip them.
const KINDS: [u16; 20] = [
    kind::THREAD_BEGIN,
    kind::ANCHOR,
    kind::EPOCH_BEGIN,
    kind::GAP,
    kind::LAUNCH,
    kind::GRAPH_LAUNCH,
    kind::COPY,
    kind::FILL,
    kind::ALLOC,
    kind::FREE,
    kind::MEMORY,
    kind::WAIT,
    kind::MODULE,
    kind::GRAPH,
    kind::CALL,
    kind::DEVICE_KERNEL,
    kind::DEVICE_COPY,
    kind::DEVICE_FILL,
    kind::DEVICE_GRAPH,
    kind::GRAPH_NODE,
];

/// Reads an input: its mode, and its batches.
pub fn batches(data: &[u8]) -> (u8, Vec<Batch>) {
    let mut input = Input(data);
    let mode = input.u8();
    let batches = if mode.is_multiple_of(2) { from_file(input.0) } else { invented(&mut input) };
    (mode, batches)
}

fn from_file(body: &[u8]) -> Vec<Batch> {
    let file = [&trace_file_header()[..], body].concat();
    let reader = TraceReader::new(&file[..], file.len() as u64, Path::new("input")).expect("a good header");
    let mut cells_kept = 0;
    reader
        .take_while(|batch| {
            if let Batch::Cells { cells, .. } = batch {
                cells_kept += cells.len();
            }
            cells_kept <= CELLS_MAX
        })
        .collect()
}

fn invented(input: &mut Input<'_>) -> Vec<Batch> {
    let mut batches = vec![
        Batch::SessionBegin(SessionBegin { monotonic_ns: 1_000, ..SessionBegin::default() }),
        Batch::ProcessBegin(ProcessBegin { ticks_per_second: 1_000_000_000, ..ProcessBegin::default() }),
    ];
    while !input.0.is_empty() {
        batches.push(batch(input));
    }
    batches
}

fn batch(input: &mut Input<'_>) -> Batch {
    // Most numbers of processes and rings, and most ids, are small, so that batches refer to the same ones.
    let which = input.u8();
    let process = u32::from(which >> 6);
    match which % 16 {
        0 => Batch::SessionBegin(SessionBegin {
            realtime_ns: input.u64(),
            monotonic_ns: input.u64(),
            ..SessionBegin::default()
        }),
        1 => Batch::ProcessBegin(ProcessBegin {
            process: if which & 32 != 0 { input.u64() as u32 } else { process },
            tick_kind: u32::from(input.u8()),
            ticks_per_second: input.u64(),
            start_ticks: input.u64(),
            start_monotonic_ns: input.u64(),
            start_realtime_ns: input.u64(),
            ..ProcessBegin::default()
        }),
        2..=4 => {
            let count = input.u8() % 8;
            Batch::Definitions { process, records: (0..count).map(|_| definition(input)).collect() }
        }
        5 => {
            let values = std::array::from_fn(|_| u64::from(input.u8()) << (which & 63));
            let mut word = || input.u64();
            Batch::Counters(Counters {
                process,
                values,
                ring_full: word(),
                written: word(),
                sampled_hooks: word(),
                sampled_ticks: word(),
                ..Counters::default()
            })
        }
        6 => {
            let end = [ProcessEnd::Exit, ProcessEnd::Exec, ProcessEnd::Vanished, ProcessEnd::Running];
            let end = end[usize::from(input.u8() % 4)];
            Batch::ProcessEnd { process, end, monotonic_ns: input.u64() }
        }
        7 => Batch::SessionEnd { wall_ns: input.u64() },
        _ => {
            let ring = if which & 32 != 0 { input.u64() as u32 } else { u32::from(which >> 4 & 1) };
            let count = input.u8() % BATCH_CELLS_MAX;
            Batch::Cells { process, ring, cells: (0..count).map(|_| cell(input)).collect() }
        }
    }
}

fn definition(input: &mut Input<'_>) -> Definition {
    let kind = u16::from(input.u8() % 21);
    let id = u32::from(input.u8());
    let fields = input.u8() % 32;
    let fields = (0..fields).map(|_| if id & 1 == 0 { input.u64() } else { u64::from(input.u8()) }).collect();
    let length = usize::from(input.u8()).min(input.0.len());
    let (text, rest) = input.0.split_at(length);
    input.0 = rest;
    Definition { kind, id: if id == 255 { u32::MAX } else { id }, fields, text: text.to_vec() }
}

fn cell(input: &mut Input<'_>) -> Cell {
    let which = input.u8();
    let cells = if which & 128 != 0 { input.u8() } else { 1 + u8::from(which % 32 == 14) };
    let kind = KINDS.get(usize::from(which % 32)).copied().unwrap_or(u16::from(which));
    let mut cell = Cell::new(kind, cells, input.u8());
    // Small values often equal each other, so that cells refer to the same things; large ones test overflow.
    for index in 0..CELL_WORDS {
        let word =
            if which & 64 != 0 { input.u64() } else { u64::from(input.u8()) | u64::from(input.u8()) << 32 };
        cell.0[index] = if index == 0 { cell.0[0] & 0xffff_ffff | word << 32 } else { word };
    }
    cell
}
