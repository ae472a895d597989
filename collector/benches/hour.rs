//! An hour of 100 000 events a second, as fast as it goes, through all that a live session feeds: the trace file, the
//! model, aggregates, spans and metrics, with a back end that is away the whole time. What is looked at is memory.
//!
//! ```text
//! cargo bench -p gputrace-collector --bench hour                      360 million events
//! GPUTRACE_EVENTS=20000000 cargo bench -p gputrace-collector --bench hour
//! ```
//!
//! The events are those of a recorded PyTorch run, over and over; their times go on by a second for each 100 000 of them,
//! and they come as the recorder gathers them. Ends with 1 if more than 64 MiB were resident, or if what was counted is not
//! what was fed.
#![allow(clippy::unwrap_used)]

mod recorded;

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::batch::Batch;
use gputrace_collector::metrics::{self, Metrics};
use gputrace_collector::model::Model;
use gputrace_collector::otlp::{Asked, Config, Exporter, OnFull, Signal};
use gputrace_collector::spans::{Naming, Sampling, SpanBatcher, Spans};
use gputrace_collector::trace_file::TraceWriter;
use recorded::Recorded;

const EVENTS: u64 = 360_000_000;
const EVENTS_A_SECOND: u64 = 100_000;
const MOST_MIB: u64 = 64;

/// What the kernel says of this process's memory, in KiB.
fn resident_kib(of: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(of)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

fn main() -> ExitCode {
    // As the program has its heap (`src/heap.rs`).
    // SAFETY: mallopt takes plain numbers, and no other thread allocates yet.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10) };
    let events = std::env::var("GPUTRACE_EVENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(EVENTS);
    let recorded = Recorded::pytorch().at_rate(EVENTS_A_SECOND);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let before_kib = resident_kib("VmRSS");

    let config = Config::new(&Asked::Url("http://127.0.0.1:9".to_owned()), |_| None).unwrap();
    let (live, source) = SpanBatcher::new(Naming::default(), OnFull::DropsOldest);
    let exporter = Exporter::start(config, vec![source], Arc::new(|_: &str| {}), None).unwrap();
    let sender = exporter.sender();
    let to = metrics::MetricsSender::new(sender.clone(), OnFull::DropsOldest);
    let metrics = Metrics::new(to, metrics::Settings::default());
    let spans = Spans::new(live.send_by(sender.clone()), Sampling::default());
    let mut model = Model::new((Aggregates::default(), spans, metrics));
    let mut writer = TraceWriter::create(&path).unwrap();
    let mut feed = |batch: Batch| {
        writer.write(&batch).unwrap();
        model.consume(&batch);
    };
    recorded.head.iter().cloned().for_each(&mut feed);
    let begin = Instant::now();
    let (mut fed, mut round, mut second, mut told) = (0, 0, 0, Instant::now());
    while fed < events {
        let (part, next) = recorded.part(round);
        for (ring, cells) in part {
            feed(Batch::Cells { process: 0, ring, cells });
        }
        fed += (next - round) * recorded.entries;
        round = next;
        if fed / EVENTS_A_SECOND > second {
            second = fed / EVENTS_A_SECOND;
            feed(recorded.counters());
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            println!("{fed} events, {} MiB resident", resident_kib("VmRSS") >> 10);
        }
    }
    let took = begin.elapsed();
    let status = sender.status();
    let queued = status.of(Signal::Traces).map_or((0, 0), |of| (of.queued, of.dropped));
    let (totals, _) = model.finish();
    drop(exporter);
    let peak_kib = resident_kib("VmHWM");
    let counted = totals.counts.executed;
    let expected = recorded.executed * round;
    println!(
        "{fed} events ({} s of {EVENTS_A_SECOND} a second) in {:.1} s: {:.2} million a second",
        fed / EVENTS_A_SECOND,
        took.as_secs_f64(),
        fed as f64 / took.as_secs_f64() / 1e6
    );
    println!(
        "spans: {} queued, {} dropped; the trace file has {} MiB",
        queued.0,
        queued.1,
        fs::metadata(&path).unwrap().len() >> 20
    );
    println!("resident: {} MiB at most, {} MiB before anything was fed", peak_kib >> 10, before_kib >> 10);
    println!("executed: {counted} counted, {expected} fed");
    if peak_kib > MOST_MIB << 10 || counted != expected {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
