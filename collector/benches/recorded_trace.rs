//! How many events a second of a real recorded trace the collector processes on one core: from rings to
//! aggregates, and from rings to the trace file and the queue of spans, as `run` and `run --otlp` do. Events
//! are host calls, device records and ranges.
//!
//! The targets are 5 and 2 million. The rings are filled before the measurement; measured is the work of the
//! collector's two threads, one after the other on one thread, in that thread's processor time, which a busy
//! machine changes little.
#![allow(clippy::unwrap_used)]

mod recorded;

use std::hint::black_box;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::batch::Batch;
use gputrace_collector::export::{Destination, Event, FORMATS, Feed, Format, Trace};
use gputrace_collector::metrics::{self, Metrics};
use gputrace_collector::model::Model;
use gputrace_collector::model::sink::Sink;
use gputrace_collector::otlp::{Asked, Exporter, ExporterConfig, OnFull};
use gputrace_collector::spans::{Naming, Sampling, SpanBatcher, SpanSink};
use gputrace_collector::trace_file::TraceWriter;
use gputrace_wire::cell::CELL_WORDS;
use gputrace_wire::ring::{Consumer, Producer, Ring};
use recorded::{Part, Recorded};
use rustix::time::{ClockId, clock_gettime};

/// The cells of a ring; as many as the record ring of a process has.
const RING_CELLS: usize = 1 << 18;
const PARTS: usize = 12;

/// A ring in this process's memory.
struct Memory {
    head: AtomicU64,
    tail: AtomicU64,
    words: Vec<AtomicU64>,
}

impl Memory {
    fn new() -> Memory {
        Memory {
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            words: (0..RING_CELLS * CELL_WORDS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.head, &self.tail, &self.words).unwrap()
    }

    fn fill(&self, part: &[gputrace_wire::cell::Cell]) {
        let mut producer = Producer::new(self.ring());
        for chunk in part.chunks(2) {
            assert!(producer.push(chunk));
        }
    }

    fn drain(&self, cells: u64) -> Vec<gputrace_wire::cell::Cell> {
        let mut consumer = Consumer::new(self.ring());
        let mut taken = Vec::new();
        let count = consumer.read(cells, |cell| taken.push(cell)).unwrap();
        consumer.release(count);
        taken
    }
}

/// Feeds the parts through rings to `consume`. Returns the time taken, without that of filling the rings.
fn timed(parts: &[Part], memories: &[Memory], mut consume: impl FnMut(Batch)) -> Duration {
    let mut spent = Duration::ZERO;
    for part in parts {
        for ((_, cells), memory) in part.iter().zip(memories) {
            memory.fill(cells);
        }
        let begin = processor_time();
        for ((ring, cells), memory) in part.iter().zip(memories) {
            let cells = memory.drain(cells.len() as u64);
            consume(Batch::Cells { process: 0, ring: *ring, cells });
        }
        spent += processor_time() - begin;
    }
    spent
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

struct Bench {
    recorded: Recorded,
    parts: Vec<Part>,
    memories: Vec<Memory>,
    entries: u64,
}

impl Bench {
    fn new() -> Bench {
        let recorded = Recorded::pytorch();
        let mut round = 0;
        let parts: Vec<Part> = (0..PARTS)
            .map(|_| {
                let (part, next) = recorded.part(round);
                round = next;
                part
            })
            .collect();
        let memories = parts[0].iter().map(|_| Memory::new()).collect();
        let entries = recorded.entries * round;
        Bench { recorded, parts, memories, entries }
    }

    fn model<S: Sink>(&self, sink: S) -> Model<S> {
        let mut model = Model::new(sink);
        self.recorded.head.iter().for_each(|batch| model.consume(batch));
        model
    }
}

fn to_aggregates(criterion: &mut Criterion) {
    let bench = Bench::new();
    let mut group = criterion.benchmark_group("ring_to");
    group.throughput(Throughput::Elements(bench.entries)).sample_size(20);
    group.bench_function("model", |bencher| {
        bencher.iter_custom(|times| {
            let one = |_| {
                let mut model = bench.model(());
                let spent = timed(&bench.parts, &bench.memories, |batch| model.consume(&batch));
                black_box(model.finish().0.counts.timed);
                spent
            };
            (0..times).map(one).sum()
        });
    });
    group.bench_function("aggregates", |bencher| {
        bencher.iter_custom(|times| {
            let one = |_| {
                let mut model = bench.model(Aggregates::default());
                let spent = timed(&bench.parts, &bench.memories, |batch| model.consume(&batch));
                black_box(model.finish().1.device_stacks.total_ns());
                spent
            };
            (0..times).map(one).sum()
        });
    });
    group.finish();
}

/// All that `run --otlp` does, with a back end that is away: what has no more room in the queue is dropped.
fn to_file_and_spans(criterion: &mut Criterion) {
    let bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut group = criterion.benchmark_group("ring_to");
    group.throughput(Throughput::Elements(bench.entries)).sample_size(20);
    group.bench_function("spans_not_queued", |bencher| {
        bencher.iter_custom(|times| {
            let one = |_| {
                let (live, _source) = SpanBatcher::new(Naming::default(), OnFull::DropsOldest);
                let mut model = bench.model(SpanSink::new(live, Sampling::default()));
                let spent = timed(&bench.parts, &bench.memories, |batch| model.consume(&batch));
                let _ = black_box(model.finish());
                spent
            };
            (0..times).map(one).sum()
        });
    });
    group.bench_function("metrics", |bencher| {
        bencher.iter_custom(|times| {
            let one = |_| {
                let metrics = Metrics::new(|request| drop(black_box(request)), metrics::Settings::default());
                let mut model = bench.model(metrics);
                let spent = timed(&bench.parts, &bench.memories, |batch| model.consume(&batch));
                let _ = black_box(model.finish());
                spent
            };
            (0..times).map(one).sum()
        });
    });
    group.bench_function("file", |bencher| {
        bencher.iter_custom(|times| {
            let one = |_| {
                let mut writer = TraceWriter::create(&path).unwrap();
                bench.recorded.head.iter().for_each(|batch| writer.write(batch).unwrap());
                timed(&bench.parts, &bench.memories, |batch| writer.write(&batch).unwrap())
            };
            (0..times).map(one).sum()
        });
    });
    for (name, sampling) in [
        ("file_aggregates_spans_and_metrics", Sampling::default()),
        ("file_aggregates_all_spans_and_metrics", Sampling { all: true, rate: None, ..Sampling::default() }),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|times| {
                let one = |_| {
                    let (exporter, live) = away();
                    let to = metrics::MetricsSender::new(exporter.sender(), OnFull::DropsOldest);
                    let metrics = Metrics::new(to, metrics::Settings::default());
                    let sinks = (Aggregates::default(), SpanSink::new(live, sampling), metrics);
                    let mut model = bench.model(sinks);
                    let mut writer = TraceWriter::create(&path).unwrap();
                    bench.recorded.head.iter().for_each(|batch| writer.write(batch).unwrap());
                    let spent = timed(&bench.parts, &bench.memories, |batch| {
                        writer.write(&batch).unwrap();
                        model.consume(&batch);
                    });
                    let _ = black_box(model.finish());
                    drop(exporter);
                    spent
                };
                (0..times).map(one).sum()
            });
        });
    }
    group.finish();
}

/// An exporter with an unreachable back end, and the batcher that feeds it.
fn away() -> (Exporter, SpanBatcher) {
    let config = ExporterConfig::new(&Asked::Url("http://127.0.0.1:9".to_owned()), |_| None).unwrap();
    let (live, source) = SpanBatcher::new(Naming::default(), OnFull::DropsOldest);
    let exporter = Exporter::start(config, vec![source], Arc::new(|_: &str| {}), None).unwrap();
    let live = live.send_by(exporter.sender());
    (exporter, live)
}

/// Counts what is written to it.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU64>);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A format without an output.
struct Nothing;

impl Format for Nothing {
    fn event(&mut self, event: Event<'_>, _trace: &mut Trace<'_>) -> io::Result<()> {
        black_box(event);
        Ok(())
    }

    fn finish(&mut self, _trace: &mut Trace<'_>) -> io::Result<u64> {
        Ok(0)
    }
}

/// Executions a second, each with its call, on their way to an export: the first pass is `names`, the second
/// is `perfetto`, of which `events` is the part that is not the format's: the encoder takes the difference.
fn to_exports(criterion: &mut Criterion) {
    let bench = Bench::new();
    let executed = bench.recorded.executed * (bench.entries / bench.recorded.entries);
    let mut first = bench.model(Aggregates::default());
    timed(&bench.parts, &bench.memories, |batch| first.consume(&batch));
    let (totals, aggregates) = first.finish();
    let entry = FORMATS.iter().find(|entry| entry.name == "perfetto").unwrap();
    let second = || {
        let counter = Counter::default();
        let format = (entry.open)(Destination::Stream(Box::new(counter.clone()))).unwrap();
        let mut model = bench.model(Feed::new(Trace::new(&totals, &aggregates), format));
        let spent = timed(&bench.parts, &bench.memories, |batch| model.consume(&batch));
        model.finish().1.finish().unwrap();
        (spent, counter.0.load(Ordering::Relaxed))
    };
    println!(
        "{:.1} bytes an execution, with all calls, ranges and counters",
        second().1 as f64 / executed as f64
    );
    let mut group = criterion.benchmark_group("export_to");
    group.throughput(Throughput::Elements(executed)).sample_size(20);
    group.bench_function("names", |bencher| {
        bencher.iter_custom(|times| {
            let one = |_| {
                let mut model = bench.model(Aggregates::default());
                timed(&bench.parts, &bench.memories, |batch| model.consume(&batch))
            };
            (0..times).map(one).sum()
        });
    });
    group.bench_function("events", |bencher| {
        bencher.iter_custom(|times| {
            let one = |_| {
                let mut model = bench.model(Feed::new(Trace::new(&totals, &aggregates), Box::new(Nothing)));
                timed(&bench.parts, &bench.memories, |batch| model.consume(&batch))
            };
            (0..times).map(one).sum()
        });
    });
    group.bench_function("perfetto", |bencher| {
        bencher.iter_custom(|times| (0..times).map(|_| second().0).sum());
    });
    group.finish();
}

criterion_group!(benches, to_aggregates, to_file_and_spans, to_exports);
criterion_main!(benches);
