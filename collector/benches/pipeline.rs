//! How many entries a second the collector processes on one core: model, aggregates, file; and how long it
//! takes to render many deep stacks.
//!
//! The target is 5 million entries a second through the model with an empty sink.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::path::Path;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::batch::{Batch, Definition, ProcessBegin, SessionBegin};
use gputrace_collector::flame::Flame;
use gputrace_collector::model::Model;
use gputrace_collector::report::Report;
use gputrace_collector::trace_file::{TraceReader, TraceWriter};
use gputrace_wire::call::{Call, Detail, Launch};
use gputrace_wire::cell::{Cell, kind};
use gputrace_wire::definition::{self, Code, line_table};
use gputrace_wire::device::{Execution, Kernel};

/// Launches in one batch, as in the recorder's.
const BATCH: u32 = 8_192;
const BATCHES: u32 = 24;

/// Pseudo-random numbers.
fn scatter(seed: u32, below: u32) -> u64 {
    let mut mixed = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 31) % u64::from(below)
}

fn launches(first: u32) -> Vec<Cell> {
    let cell = |i: u32| {
        let op = i % 640;
        let launch = Launch {
            function: 100 + op * 7 % 41,
            grid: [1 + op * 37 % 500, 1, 1],
            block: [128, 1, 1],
            ..Launch::default()
        };
        let start_ticks = u64::from(i) * 30_000 + scatter(i, 9_000);
        let duration_ticks = 6_000 + scatter(i ^ 77, 4_000);
        let stack = 1_000 + op * 13 % 97;
        let detail = Detail::Launch(launch);
        let call = Call {
            kind: kind::LAUNCH,
            api: 3,
            start_ticks,
            duration_ticks,
            correlation: i,
            stack,
            detail,
            ..Call::default()
        };
        call.to_cell()
    };
    (first..first + BATCH).map(cell).collect()
}

fn records(first: u32) -> Vec<Cell> {
    let cells = |i: u32| {
        let op = i % 640;
        let start_ns = u64::from(i) * 10_000 + scatter(i, 4_000);
        let end_ns = start_ns + 2_000 + u64::from(op) * 32 + scatter(i, 6) * 32;
        let execution =
            Execution { correlation: i, start_ns, end_ns, context: 1, stream: 7, ..Execution::default() };
        let kernel = Kernel {
            execution,
            name: 20 + op * 7 % 41,
            grid: [1 + op * 37 % 500, 1, 1],
            block: [128, 1, 1],
            registers: 32,
            ..Kernel::default()
        };
        kernel.to_cells()
    };
    (first..first + BATCH).flat_map(cells).collect()
}

/// A session of launches with their records.
fn stream() -> Vec<Batch> {
    let mut batches = vec![
        Batch::SessionBegin(SessionBegin::default()),
        Batch::ProcessBegin(ProcessBegin {
            tick_kind: 2,
            ticks_per_second: 3_000_000_000,
            ..ProcessBegin::default()
        }),
    ];
    for batch in 0..BATCHES {
        batches.push(Batch::Cells { process: 0, ring: 2, cells: launches(1 + batch * BATCH) });
        batches.push(Batch::Cells { process: 0, ring: 0, cells: records(1 + batch * BATCH) });
    }
    batches
}

fn write(path: &Path, batches: &[Batch]) -> u64 {
    let mut writer = TraceWriter::create(path).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.whole_bytes()
}

fn pipeline(criterion: &mut Criterion) {
    let stream = stream();
    let entries = u64::from(BATCH * BATCHES) * 2;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let bytes = write(&path, &stream);
    println!("{:.2} bytes a launch with its record", bytes as f64 / (entries / 2) as f64);

    let mut group = criterion.benchmark_group("pipeline");
    group.throughput(Throughput::Elements(entries)).sample_size(10);
    group.bench_function("model", |bencher| {
        bencher.iter_batched(
            || Model::new(()),
            |mut model| {
                stream.iter().for_each(|batch| model.consume(batch));
                black_box(model.finish().0.counts.timed)
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("aggregate", |bencher| {
        bencher.iter_batched(
            || Model::new(Aggregates::default()),
            |mut model| {
                stream.iter().for_each(|batch| model.consume(batch));
                black_box(model.finish().1.device_stacks.total_ns())
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("write", |bencher| bencher.iter(|| black_box(write(&path, &stream))));
    group.bench_function("read", |bencher| {
        bencher.iter(|| black_box(TraceReader::open(&path).unwrap().count()));
    });
    group.finish();
}

/// Definitions of stacks forty frames deep, as of a large model, and a launch from each.
fn deep_stacks() -> Vec<Batch> {
    const STACKS: u32 = 10_000;
    const CODES: u32 = 800;
    let define = |kind, id, fields: &[u64], text: &[u8]| Definition {
        kind,
        id,
        fields: fields.to_vec(),
        text: text.to_vec(),
    };
    let code = |id: u32| {
        let (name, file) = (
            format!("Module{id}.forward"),
            format!("/opt/lib/python3.12/site-packages/model/layers/part_{}.py", id % 90),
        );
        let table = [2u8, 1].repeat(120);
        let code = Code {
            first_line: 10,
            table_form: line_table::LNOTAB,
            table_bytes: table.len() as u64,
            name: name.as_bytes(),
            file: file.as_bytes(),
            ..Code::default()
        };
        define(definition::kind::CODE, id, &code.fields(), &[code.name, code.file, &table].concat())
    };
    let stack = |id: u32| {
        let frame =
            |depth: u32| [1 + scatter(id / (1 << (depth / 4)) + depth, CODES), 2 * scatter(id ^ depth, 120)];
        let fields: Vec<u64> = (0..40).rev().flat_map(frame).collect();
        define(definition::kind::STACK, id, &fields, b"")
    };
    let mut batches = vec![
        Batch::SessionBegin(SessionBegin::default()),
        Batch::ProcessBegin(ProcessBegin {
            tick_kind: 2,
            ticks_per_second: 1_000_000_000,
            ..ProcessBegin::default()
        }),
        Batch::Definitions { process: 0, records: (1..=CODES).map(code).collect() },
        Batch::Definitions { process: 0, records: (1_000..1_000 + STACKS).map(stack).collect() },
    ];
    let launch = |i: u32| {
        let launch = Launch { function: 100 + i % 40, grid: [1; 3], block: [128, 1, 1], ..Launch::default() };
        let (start_ticks, stack) = (u64::from(i) * 9_000, 1_000 + i);
        let detail = Detail::Launch(launch);
        Call {
            kind: kind::LAUNCH,
            api: 3,
            start_ticks,
            duration_ticks: 3_000,
            correlation: 1 + i,
            stack,
            detail,
            ..Call::default()
        }
        .to_cell()
    };
    let record = |i: u32| {
        let start_ns = u64::from(i) * 9_000;
        let execution = Execution {
            correlation: 1 + i,
            start_ns,
            end_ns: start_ns + 4_000 + scatter(i, 3_000),
            ..Execution::default()
        };
        Kernel { execution, name: 20 + i % 40, grid: [1; 3], block: [128, 1, 1], ..Kernel::default() }
            .to_cells()
    };
    batches.push(Batch::Cells { process: 0, ring: 2, cells: (0..STACKS).map(launch).collect() });
    batches.push(Batch::Cells { process: 0, ring: 0, cells: (0..STACKS).flat_map(record).collect() });
    batches
}

/// The outputs of the end of a session.
fn render(criterion: &mut Criterion) {
    let mut model = Model::new(Aggregates::default());
    deep_stacks().iter().for_each(|batch| model.consume(batch));
    let (totals, aggregates) = model.finish();
    let flame = Flame::new(&totals, &aggregates);
    let mut group = criterion.benchmark_group("deep_stacks");
    group.sample_size(10);
    group.bench_function("report", |bencher| {
        bencher.iter(|| black_box(Report::new(&totals, &aggregates)).lines.len())
    });
    group.bench_function("flame", |bencher| {
        bencher.iter(|| black_box(Flame::new(&totals, &aggregates)).lines.len())
    });
    group.bench_function("svg", |bencher| bencher.iter(|| black_box(flame.svg()).len()));
    group.finish();
}

criterion_group!(benches, pipeline, render);
criterion_main!(benches);
