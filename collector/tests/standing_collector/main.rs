//! Programs come and go by the thousand: what is kept of those that exited is what the report shows, and bounded.
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
use gputrace_collector::spans::{Receiver, Sampling, Span, Spans};
use heap::{Counting, held_bytes};
use program::{BEGIN_NS, LAUNCHES, LENGTH_NS};

#[global_allocator]
static HEAP: Counting = Counting;

/// By then all has come to what it is bounded by: 4096 processes that ended are remembered as parents of others.
const SETTLED: u32 = 5_000;
const ALL: u32 = 7_000;
/// By how many programs growth is measured.
const GROWTH: u32 = ALL - SETTLED;
/// What the report keeps of such a program, with all that it defined.
const KEPT_BYTES_MAX: isize = 5 << 10;

/// Takes spans and counts them.
#[derive(Default)]
struct Count {
    spans: u64,
    ended: u64,
}

impl Receiver for Count {
    fn span(&mut self, _: Span, _: &Definitions) {
        self.spans += 1;
    }
    fn process_ended(&mut self, _: u32, _: &Definitions) {
        self.ended += 1;
    }
}

/// A session in which that many programs came and went.
struct Standing<S> {
    model: Model<S>,
    gone: u32,
}

impl<S: Sink> Standing<S> {
    fn new(sink: S) -> Standing<S> {
        let mut model = Model::new(sink);
        // One that gives its commands a span.
        let begin = SessionBegin { monotonic_ns: BEGIN_NS, hands_on: true, ..SessionBegin::default() };
        model.consume(&Batch::SessionBegin(begin));
        Standing { model, gone: 0 }
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
fn growth<S: Sink>(sink: S) -> (isize, Standing<S>) {
    let mut standing = Standing::new(sink);
    standing.until(SETTLED);
    let settled = held_bytes();
    standing.until(ALL);
    (held_bytes() - settled, standing)
}

#[test]
fn of_a_program_that_is_gone_the_model_holds_what_the_report_tells() {
    let (bytes, standing) = growth(());
    let each = bytes / (ALL - SETTLED) as isize;
    assert!(each <= KEPT_BYTES_MAX, "{each} bytes a program");
    let (totals, ()) = standing.model.finish();
    assert_eq!((totals.processes.len(), totals.counts.launches), (ALL as usize, u64::from(ALL) * LAUNCHES));
    assert!(totals.losses().is_empty(), "{:?}", totals.losses());
    let failed = totals.processes.iter().filter(|process| process.failure.is_some()).count();
    assert_eq!(failed, ALL as usize);
    // By that it is bounded.
    let reckoned = totals.processes[0].held_bytes() as isize;
    assert!((each / 2..each * 2).contains(&reckoned), "{reckoned} of {each} bytes");
}

/// What a sink holds beside the model must not grow at all.
fn assert_flat<S: Sink>(sink: S) -> S {
    let (model_alone, standing) = growth(());
    drop(standing);
    let (bytes, standing) = growth(sink);
    let more = bytes - model_alone;
    assert!(more < 4 << 10, "{more} bytes more after {} programs more", ALL - SETTLED);
    standing.model.finish().1
}

#[test]
fn of_a_program_that_is_gone_spans_hold_nothing() {
    let sampling = Sampling { threshold_ns: 10_000, ..Sampling::default() };
    let (complaints, told) = assert_flat(Spans::new(Count::default(), sampling)).finish();
    // All processes, and the run.
    assert_eq!((told.ended, complaints.len()), (u64::from(ALL) + 1, 0));
    assert!(told.spans > u64::from(ALL) * 12, "{}", told.spans);
}

#[test]
fn of_a_program_that_is_gone_metrics_hold_nothing() {
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
    let mut standing = Standing::new(Heard::default());
    for process in 0..PROGRAMS {
        let begin = ProcessBegin { process, pid: 7, ..ProcessBegin::default() };
        standing.model.consume(&Batch::ProcessBegin(begin));
        standing.model.consume(&Batch::Counters(Counters { process, ring_full: 1, ..Counters::default() }));
        let end = ProcessEnd::Exit;
        standing.model.consume(&Batch::ProcessEnd { process, end, monotonic_ns: BEGIN_NS });
    }
    let (totals, Heard(begun, ended)) = standing.model.finish();
    assert_eq!((begun, ended, totals.processes.len()), (PROGRAMS, PROGRAMS, 1 << 16));
    let losses: Vec<_> = totals.losses().iter().map(|(reason, count)| (*reason, *count)).collect();
    assert_eq!(losses, [("processes_not_kept", 500), ("ring_full", PROGRAMS.into())]);
    assert_eq!((totals.processes[0].number, totals.evicted.processes, totals.evicted.lost), (500, 500, 500));
}
