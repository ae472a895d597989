//! Which trace spans are part of, and whose: the run's, the caller's, a request's.

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

fn feed(session: &SessionBegin) -> Feed {
    let mut feed = Feed::new(Sampling::default());
    feed.0.consume(&Batch::SessionBegin(session.clone()));
    feed
}

#[test]
fn what_a_run_gives_to_its_command_is_the_parent_of_its_processes() {
    for caller in ["", TRACE] {
        let session = session(true, caller);
        let given = run::traceparent(&session).unwrap();
        let mut feed = feed(&session);
        // Two workers beside each other, one of which starts a third, and one that lost its environment.
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
fn a_process_with_a_parent_of_its_own_is_not_the_run_s() {
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
fn a_caller_that_did_not_sample_is_handed_on_as_it_was() {
    let not_sampled = TRACE.replace("-01", "-00");
    let given = run::traceparent(&session(true, &not_sampled)).unwrap();
    assert!(given.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && given.ends_with("-00"), "{given}");
    assert!(!given.contains("b7ad6b7169203331"), "a span of ours");
}

#[test]
fn without_a_context_of_the_run_s_own_there_is_no_span_of_it() {
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
fn a_malformed_parent_of_the_run_is_said_once_and_replaced() {
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
