//! What was decoded, whatever it says, through the model to every output.
//!
//! Input: a mode (u8). Even: a trace file without its header, as the `trace_file` target has it.
//! Odd: batches, each a kind (u8) and what `batch` takes for it.
#![no_main]

use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::batch::{Batch, Counters, Definition, ProcessBegin, ProcessEnd, SessionBegin};
use gputrace_collector::flame::Flame;
use gputrace_collector::model::{Model, Totals, in_flight};
use gputrace_collector::report::{Report, TextOptions};
use gputrace_collector::trace_file::TraceReader;
use gputrace_fuzz::{Input, trace_file_header};
use gputrace_wire::cell::{CELL_WORDS, Cell, kind};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

/// Cells of one input: a small block of a file can hold 65 536 of them.
const CELLS_MAX: usize = 1 << 16;
/// Cells of one batch.
const BATCH_CELLS_MAX: u8 = 32;

/// The kinds that the model knows, so that most cells mean something.
const KINDS: [u16; 19] = [
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

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let batches = if input.u8().is_multiple_of(2) { from_file(input.0) } else { invented(&mut input) };
    let (totals, aggregates) = consume(&batches, false);
    check(&totals);

    let report = Report::new(&totals, &aggregates);
    assert!(report.to_json().starts_with('{'));
    assert!(report.to_text(&TextOptions::default()).ends_with('\n'));
    let flame = Flame::new(&totals, &aggregates);
    for line in flame.folded().lines() {
        let (_, weight) = line.rsplit_once(' ').expect("frames and a weight");
        weight.parse::<u64>().expect("a weight is a number");
    }
    // Drawing costs a millisecond and knows lines only.
    if data.len().is_multiple_of(16) {
        assert!(flame.svg().ends_with("</svg>\n"));
    }

    // How the stream was cut into batches means nothing.
    let (again, _) = consume(&batches, true);
    assert_eq!(again.counts, totals.counts);
    assert_eq!(again.wall_ns(), totals.wall_ns());
    assert_eq!(again.sessions, totals.sessions);
    for (again, process) in again.processes.iter().zip(&totals.processes) {
        assert_eq!(again.failure, process.failure);
        assert_eq!(again.in_flight, process.in_flight);
    }
});

/// What holds of every stream.
fn check(totals: &Totals) {
    let counts = &totals.counts;
    assert!(counts.timed <= counts.executed);
    let coverage = counts.device_time_coverage();
    assert!((0.0..=1.0).contains(&coverage), "{coverage}");
    assert!(totals.losses().values().all(|count| *count > 0));
    for process in &totals.processes {
        assert!(process.ns_per_tick.is_finite(), "{}", process.ns_per_tick);
        let all = &process.in_flight;
        assert!(all.streams.len() <= in_flight::STREAMS_SHOWN);
        for stream in &all.streams {
            assert!(stream.calls.len() <= in_flight::NEWEST_SHOWN + in_flight::OLDEST_SHOWN);
            assert_eq!(stream.calls.len() as u64 + stream.left_out, stream.operations);
            assert!(stream.calls.is_sorted_by_key(|call| std::cmp::Reverse(call.start_ns)));
        }
        assert!(all.streams.iter().map(|stream| stream.operations).sum::<u64>() <= all.operations);
        assert!(process.hook_cost_ns().is_none_or(|cost| cost.is_finite() && cost >= 0.0));
    }
}

/// Feeds the model, entry by entry if asked.
fn consume(batches: &[Batch], cut: bool) -> (Totals, Aggregates) {
    let mut model = Model::new(Aggregates::default());
    for batch in batches {
        match batch {
            Batch::Cells { process, ring, cells } if cut => {
                let mut rest = cells.as_slice();
                while let Some(first) = rest.first() {
                    let length = usize::from(first.cells());
                    // What is cut short is not cut further.
                    let whole = if length == 0 || length > rest.len() { rest.len() } else { length };
                    let (entry, after) = rest.split_at(whole);
                    let cells = entry.to_vec();
                    model.consume(&Batch::Cells { process: *process, ring: *ring, cells });
                    rest = after;
                }
            }
            batch => model.consume(batch),
        }
    }
    model.finish()
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
    // Mostly few processes, rings and ids, so that they meet.
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
    // Small values meet each other; large ones overflow.
    for index in 0..CELL_WORDS {
        let word =
            if which & 64 != 0 { input.u64() } else { u64::from(input.u8()) | u64::from(input.u8()) << 32 };
        cell.0[index] = if index == 0 { cell.0[0] & 0xffff_ffff | word << 32 } else { word };
    }
    cell
}
