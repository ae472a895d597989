//! Thousands of programs in one session: of those that exited, only what the report shows is kept,
//! and memory is bounded.
#![allow(clippy::unwrap_used)]

mod heap;
mod program;
mod sums;

use gputrace_collector::batch::{Batch, Counters, ProcessBegin, ProcessEnd, SessionBegin};
use gputrace_collector::metrics::{Metrics, Settings};
use gputrace_collector::model::Model;
use gputrace_collector::model::definitions::Definitions;
use gputrace_collector::model::operation::{HostCall, Operation};
use gputrace_collector::model::sink::Sink;
use gputrace_collector::spans::{Sampling, Span, SpanReceiver, SpanSink};
use heap::{Counting, held_bytes};
use program::{BEGIN_NS, LAUNCHES, LENGTH_NS};

#[global_allocator]
static HEAP: Counting = Counting;

/// By then the spans know as many exited processes, as parents of others, as they ever do: 4096.
const FULL: u32 = 5_000;
const ALL: u32 = 7_000;
/// By how many programs growth is measured.
const GROWTH: u32 = ALL - FULL;
/// What the report keeps of such a program, with all that it defined.
const KEPT_BYTES_MAX: isize = 5 << 10;

/// Takes spans and counts them.
#[derive(Default)]
struct Count {
    spans: u64,
    ended: u64,
}

impl SpanReceiver for Count {
    fn span(&mut self, _: Span, _: &Definitions) {
        self.spans += 1;
    }
    fn process_ended(&mut self, _: u32, _: &Definitions) {
        self.ended += 1;
    }
}

/// A session in which that many programs came and went.
struct Programs<S> {
    model: Model<S>,
    gone: u32,
}

impl<S: Sink> Programs<S> {
    fn new(sink: S) -> Programs<S> {
        let mut model = Model::new(sink);
        // One that gives its commands a span.
        let begin = SessionBegin { monotonic_ns: BEGIN_NS, hands_on: true, ..SessionBegin::default() };
        model.consume(&Batch::SessionBegin(begin));
        Programs { model, gone: 0 }
    }

    fn until(&mut self, gone: u32) {
        for number in self.gone..gone {
            let end = self.run(number);
            self.model.time_passes(BEGIN_NS + (u64::from(number) + 1) * LENGTH_NS);
            self.model.consume(&end);
        }
        self.gone = gone;
    }

    /// A program does all that one does but end; its end.
    fn run(&mut self, number: u32) -> Batch {
        let mut batches = program::batches(number);
        let end = batches.pop().unwrap();
        batches.iter().for_each(|batch| self.model.consume(batch));
        end
    }
}

/// How many bytes more are held after all programs than after some, with that sink.
fn growth<S: Sink>(sink: S) -> (isize, Programs<S>) {
    let mut programs = Programs::new(sink);
    programs.until(FULL);
    let full = held_bytes();
    programs.until(ALL);
    (held_bytes() - full, programs)
}

#[test]
fn model_keeps_of_an_exited_program_what_the_report_shows() {
    let (bytes, programs) = growth(());
    let each = bytes / (ALL - FULL) as isize;
    assert!(each <= KEPT_BYTES_MAX, "{each} bytes a program");
    let (totals, ()) = programs.model.finish();
    assert_eq!((totals.processes.len(), totals.counts.launches), (ALL as usize, u64::from(ALL) * LAUNCHES));
    assert!(totals.losses().is_empty(), "{:?}", totals.losses());
    let failed = totals.processes.iter().filter(|process| process.failure.is_some()).count();
    assert_eq!(failed, ALL as usize);
    // By that it is bounded.
    let held = totals.processes[0].held_bytes() as isize;
    assert!((each / 2..each * 2).contains(&held), "{held} of {each} bytes");
}

/// What a sink holds beside the model must not grow at all.
fn assert_flat<S: Sink>(sink: S) -> S {
    let (model_alone, programs) = growth(());
    drop(programs);
    let (bytes, programs) = growth(sink);
    let more = bytes - model_alone;
    assert!(more < 4 << 10, "{more} bytes more after {} programs more", ALL - FULL);
    programs.model.finish().1
}

#[test]
fn spans_keep_nothing_of_an_exited_program() {
    let sampling = Sampling { threshold_ns: 10_000, ..Sampling::default() };
    let (complaints, count) = assert_flat(SpanSink::new(Count::default(), sampling)).finish();
    // All processes, and the run.
    assert_eq!((count.ended, complaints.len()), (u64::from(ALL) + 1, 0));
    assert!(count.spans > u64::from(ALL) * 12, "{}", count.spans);
}

#[test]
fn metrics_keep_nothing_of_an_exited_program() {
    let mut requests = 0u64;
    let settings = Settings { kernels: 10, ..Settings::default() };
    let metrics = Metrics::new(|_| requests += 1, settings);
    drop(assert_flat(metrics));
    assert!(requests >= u64::from(ALL), "{requests}");
}

/// As many as are kept, and more: those that exited first are evicted.
#[test]
fn programs_reach_sinks_however_many_exited_before() {
    #[derive(Default)]
    struct Heard(u32, u32);
    impl Sink for Heard {
        fn process_begins(&mut self, number: u32, _: &ProcessBegin, _: &SessionBegin) {
            assert_eq!(number, self.0);
            self.0 += 1;
        }
        fn host_call(&mut self, _: &HostCall, _: &Definitions) {}
        fn operation(&mut self, _: &Operation, _: &Definitions) {}
        fn process_ends(&mut self, number: u32, _: u64, _: &Definitions) {
            assert_eq!(number, self.1);
            self.1 += 1;
        }
    }
    const PROGRAMS: u32 = (1 << 16) + 500;
    let mut programs = Programs::new(Heard::default());
    for process in 0..PROGRAMS {
        let begin = ProcessBegin { process, pid: 7, ..ProcessBegin::default() };
        programs.model.consume(&Batch::ProcessBegin(begin));
        programs.model.consume(&Batch::Counters(Counters { process, ring_full: 1, ..Counters::default() }));
        let end = ProcessEnd::Exit;
        programs.model.consume(&Batch::ProcessEnd { process, end, monotonic_ns: BEGIN_NS });
    }
    let (totals, Heard(begun, ended)) = programs.model.finish();
    assert_eq!((begun, ended, totals.processes.len()), (PROGRAMS, PROGRAMS, 1 << 16));
    let losses: Vec<_> = totals.losses().iter().map(|(reason, count)| (*reason, *count)).collect();
    assert_eq!(losses, [("processes_not_kept", 500), ("ring_full", PROGRAMS.into())]);
    assert_eq!((totals.processes[0].number, totals.evicted.processes, totals.evicted.lost), (500, 500, 500));
}
