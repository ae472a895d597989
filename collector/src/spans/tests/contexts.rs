//! The trace and the parent of spans: the run's, the calling program's, or a request's.

use gputrace_wire::caller::{Caller, CallerEntry};

use super::*;
use crate::spans::run;

const CALLER: u64 = 0xb7ad_6b71_6920_3331;

fn session(hands_on: bool, traceparent: &str) -> SessionBegin {
    SessionBegin {
        command: vec!["/usr/bin/torchrun".to_owned(), "train.py".to_owned()],
        realtime_ns: 1_000_000 * MS,
        hands_on,
        traceparent: traceparent.to_owned(),
        ..SessionBegin::default()
    }
}

fn feed(session: &SessionBegin) -> SpanFeed {
    let mut feed = SpanFeed::new(Sampling::default());
    feed.0.consume(&Batch::SessionBegin(session.clone()));
    feed
}

#[test]
fn run_span_is_the_parent_of_its_processes() {
    for caller in ["", TRACE] {
        let session = session(true, caller);
        let given = run::traceparent(&session).unwrap();
        let mut feed = feed(&session);
        // Two workers, one of which starts a third, and a process that lost its environment.
        let origins = [(origin_of::TRACEPARENT, given.as_str()), (origin_of::TRACESTATE, "vendor=x")];
        feed.process(0, 100, 1, &origins);
        feed.process(1, 101, 1, &origins);
        feed.process(2, 102, 101, &origins);
        feed.process(3, 103, 1, &[]);
        for process in 0..4 {
            feed.end(process, (2 + u64::from(process)) * MS);
        }
        let (spans, complaints) = feed.finish();
        assert_eq!(complaints, [""; 0]);
        let run = named(&spans, "run: torchrun");
        assert_eq!(given, format!("00-{:032x}-{:016x}-01", run.trace_id, run.id));
        let expected_parent = if caller.is_empty() { 0 } else { CALLER };
        assert_eq!((run.parent, run.parent_is_remote), (expected_parent, !caller.is_empty()));
        assert!(spans.iter().all(|span| span.trace_id == run.trace_id));
        let state = if caller.is_empty() { "" } else { "vendor=x" };
        assert!(spans.iter().filter(|span| span.process != 3).all(|span| &*span.trace_state == state));
        let roots: Vec<&Span> = spans.iter().filter(|span| span.name.starts_with("process: ")).collect();
        let parents: Vec<u64> = roots.iter().map(|root| root.parent).collect();
        assert_eq!(parents, [run.id, run.id, roots[1].id, run.id]);
        assert!(roots.iter().all(|root| !root.parent_is_remote));
        assert_eq!((run.start_ns, run.end_ns), (1_000_000 * MS, 1_000_005 * MS));
        assert_eq!(value(run, "gputrace.processes"), Some(&Value::Number(4)));
        assert_eq!(spans.len(), 5);
    }
}

#[test]
fn process_with_its_own_traceparent_is_not_a_child_of_the_run() {
    let session = session(true, "");
    let mut feed = feed(&session);
    feed.process(0, 100, 1, &[(origin_of::TRACEPARENT, TRACE)]);
    feed.end(0, MS);
    let (spans, _) = feed.finish();
    let root = named(&spans, "process: python3");
    assert_eq!((root.parent, root.parent_is_remote), (CALLER, true));
    assert_ne!(root.trace_id, named(&spans, "run: torchrun").trace_id);
}

#[test]
fn unsampled_traceparent_stays_unsampled() {
    let not_sampled = TRACE.replace("-01", "-00");
    let given = run::traceparent(&session(true, &not_sampled)).unwrap();
    assert!(given.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && given.ends_with("-00"), "{given}");
    assert!(!given.contains("b7ad6b7169203331"), "a new span id");
}

#[test]
fn run_without_a_context_has_no_span() {
    for caller in ["", TRACE, "nonsense"] {
        let session = session(false, caller);
        assert_eq!(run::traceparent(&session), None);
        let mut feed = feed(&session);
        feed.process(0, 100, 1, &[]);
        feed.end(0, MS);
        let (spans, complaints) = feed.finish();
        assert_eq!((spans.len(), complaints.len()), (1, 0));
    }
}

#[test]
fn malformed_parent_of_the_run_is_reported_once_and_replaced() {
    let session = session(true, "00-nonsense");
    assert!(run::complaint(&session).unwrap().starts_with("TRACEPARENT is not used: "));
    let given = run::traceparent(&session).unwrap();
    let mut feed = feed(&session);
    let origins = [(origin_of::TRACEPARENT, given.as_str()), (origin_of::TRACESTATE, "not used without")];
    feed.process(0, 100, 1, &origins);
    feed.process(1, 101, 1, &origins);
    feed.end(0, MS);
    feed.end(1, MS);
    let (spans, complaints) = feed.finish();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert_eq!(named(&spans, "run: torchrun").parent, 0);
}

fn request(number: u64) -> Caller {
    Caller { trace: [number, 0xabc], span: 0xf00 + number, flags: 1, remote: 0 }
}

fn active_span(number: u64) -> Cell {
    let caller = if number == 0 { Caller::NOBODY } else { request(number) };
    CallerEntry { caller, ticks: 1 }.to_cell()
}

fn push_for(position: u32, start_ticks: u64, number: u64) -> [Cell; 2] {
    let begin =
        RangeBegin { kind: kind::RANGE_PUSH, range: 4, position, start_ticks, ..RangeBegin::default() };
    begin.to_cells(&request(number))
}

/// The parent of each kernel, in order of launch: the request's number, or `-`, and the parent's name or id.
fn parents(spans: &[Span]) -> Vec<String> {
    let mut kernels: Vec<&Span> = spans.iter().filter(|span| span.name.starts_with("cuda_kernel")).collect();
    kernels.sort_by_key(|kernel| kernel.events[0].at_ns);
    let names: BTreeMap<u64, &str> = spans.iter().map(|span| (span.id, span.name.as_str())).collect();
    let of = |kernel: &&Span| {
        let own = kernel.trace_id >> 64 == 0xabc;
        let request = if own { format!("{}", kernel.trace_id as u64) } else { "-".to_owned() };
        match names.get(&kernel.parent) {
            Some(name) => format!("{request} {name}"),
            None => format!("{request} {:x}", kernel.parent),
        }
    };
    kernels.iter().map(of).collect()
}

/// Feeds entries; each launch among them gets a kernel.
fn fed(cells: &[Vec<Cell>]) -> Vec<Span> {
    let mut feed = SpanFeed::one(Sampling::default());
    let cells: Vec<Cell> = cells.concat();
    feed.cells(0, &cells);
    for call in cells.iter().filter_map(Call::from_cell) {
        feed.records(0, &kernel(call.correlation, call.start_ticks + 50 * US, 500 * US));
    }
    feed.end(0, 9_000 * US);
    feed.finish().0
}

fn one(cell: Cell) -> Vec<Cell> {
    vec![cell]
}

fn launched(number: u32) -> Vec<Cell> {
    vec![launch(u64::from(number) * 100 * US, 5 * US, number)]
}

#[test]
fn launches_are_children_of_the_active_request() {
    let spans = fed(&[
        launched(1),
        one(active_span(7)),
        launched(2),
        launched(3),
        one(active_span(8)),
        launched(4),
        one(active_span(0)),
        launched(5),
        one(active_span(7)),
        one(ThreadBegin { thread: 3, ticks: 9 }.to_cell()),
        launched(6),
    ]);
    let process = "- process: python3";
    assert_eq!(parents(&spans), [process, "7 f07", "7 f07", "8 f08", process, process]);
    let root = named(&spans, "process: python3");
    assert!(spans.iter().all(|span| span.trace_id == root.trace_id || span.trace_id >> 64 == 0xabc));
}

#[test]
fn ranges_of_a_request_are_in_its_trace_alone() {
    let spans = fed(&[
        // The server's loop belongs to no request; the request's ranges are inside it.
        one(push(0, 10)),
        launched(1),
        one(active_span(7)),
        launched(2),
        one(push(1, 210 * US)),
        launched(3),
        // Another task runs on the thread, then the first one again.
        one(active_span(8)),
        launched(4),
        one(active_span(7)),
        launched(5),
        one(pop(1, 210 * US, 600 * US)),
        one(active_span(0)),
        launched(7),
        one(pop(0, 10, 800 * US)),
    ]);
    assert_eq!(parents(&spans), ["- step", "7 f07", "7 step", "8 f08", "7 step", "- step"]);
    let ranges: Vec<&Span> = spans.iter().filter(|span| span.name == "step").collect();
    let parents: BTreeSet<(u128, u64)> = ranges.iter().map(|span| (span.trace_id, span.parent)).collect();
    let root = named(&spans, "process: python3");
    assert_eq!(parents, BTreeSet::from([(root.trace_id, root.id), (0xabc << 64 | 7, 0xf07)]));
}

#[test]
fn ranges_belong_to_the_request_they_were_pushed_for() {
    let spans = fed(&[
        push_for(0, 10, 3).to_vec(),
        launched(1),
        // A span that was begun inside the range wins over it, and so does another task's span.
        one(active_span(7)),
        launched(2),
        push_for(1, 210 * US, 4).to_vec(),
        launched(3),
        one(push(2, 310 * US)),
        launched(4),
        one(active_span(0)),
        launched(5),
        one(active_span(7)),
        one(pop(2, 310 * US, 600 * US)),
        launched(6),
        one(pop(1, 210 * US, 700 * US)),
        launched(7),
        one(active_span(0)),
        one(pop(0, 10, 800 * US)),
        launched(8),
    ]);
    let all = ["3 step", "7 f07", "4 step", "4 step", "3 step", "4 step", "7 f07", "- process: python3"];
    assert_eq!(parents(&spans), all);
    // The range belongs to the request, and the range inside it too.
    let ranges: BTreeMap<u64, &Span> =
        spans.iter().filter(|span| span.name == "step").map(|span| (span.id, span)).collect();
    let in_4: Vec<&&Span> = ranges.values().filter(|span| span.trace_id as u64 == 4).collect();
    assert_eq!(in_4.len(), 2);
    assert_eq!(in_4.iter().filter(|span| span.parent == 0xf04).count(), 1);
    assert_eq!(in_4.iter().filter(|span| ranges.contains_key(&span.parent)).count(), 1);
}

#[test]
fn late_kernels_of_a_forgotten_request_are_children_of_the_process() {
    let mut feed = SpanFeed::one(Sampling::default());
    feed.cells(0, &[active_span(1), launch(20 * US, 5 * US, 1), active_span(2), launch(30 * US, 5 * US, 2)]);
    let many: Vec<Cell> = (3..(1 << 16) + 3).map(active_span).collect();
    feed.cells(0, &many[..(1 << 16) - 1]);
    feed.records(0, &kernel(1, 100 * US, 500 * US));
    feed.records(0, &kernel(2, 700 * US, 500 * US));
    feed.end(0, 9_000 * US);
    assert_eq!(parents(&feed.finish().0), ["- process: python3", "2 f02"]);
}
