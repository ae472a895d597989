//! Processes of which nothing by itself is kept.

use gputrace_wire::counter::Counter;

use crate::aggregate::Aggregates;
use crate::batch::{Counters, ProcessEnd};
use crate::model::Model;
use crate::model::definitions::ProcessInfo;
use crate::names::EndedName;
use crate::report::tests::tape::Tape;
use crate::report::{ErrorReport, GraphReport, Report, Spread, TextOptions};

#[test]
fn processes_that_are_not_kept_are_in_all_sums() {
    let [kept, unkept] = [9, 0].map(|processes_max| {
        let mut tape = Tape::new(false);
        tape.launch(20, 256, Some(5_000));
        tape.launch(20, 256, Some(5_000));
        tape.wait(9_000);
        tape.refuse(2);
        let mut counters = Counters { sampled_hooks: 2, sampled_ticks: 100, ..Counters::default() };
        counters.values[Counter::RecordsDelivered as usize] = 2;
        counters.values[Counter::RecordTicks as usize] = 700;
        counters.values[Counter::RecordLagMaxNs as usize] = 30;
        let model = Model::keeping(Aggregates::default(), processes_max);
        let (totals, aggregates) = tape.end_in(model, ProcessEnd::Exit, counters);
        Report::new(&totals, &aggregates)
    });
    assert_eq!((kept.processes.len(), unkept.processes.len()), (1, 0));
    assert_eq!((kept.dropped.len(), unkept.dropped["processes_not_kept"]), (0, 1));
    assert_eq!(unkept.counts, kept.counts);
    assert_eq!(unkept.cost, kept.cost);
    // Its names are told with those of its name.
    assert_eq!((&unkept.kernels, &unkept.calls), (&kept.kernels, &kept.calls));
    assert!(kept.kernels.len() == 1 && kept.calls.len() > 1, "{:?}", kept.calls);
    assert_eq!((kept.threads_left_out, unkept.threads_left_out), (0, kept.threads.len() as u64));
    assert_eq!((kept.cost.records, kept.cost.sampled_hooks), (2, 2));
    // No record was lost.
    assert!(kept.devices[0].idle_ns.is_some());
    assert_eq!(unkept.devices[0].idle_ns, kept.devices[0].idle_ns);
    // So is a call that failed, but for who it was.
    assert_eq!((kept.errors.calls, kept.errors.left_out, kept.errors.list.len()), (1, 0, 1));
    assert_eq!((unkept.errors.calls, unkept.errors.left_out), (1, 0));
    let ([kept_error], [error]) = (&kept.errors.list[..], &unkept.errors.list[..]) else {
        panic!("{:?}", unkept.errors)
    };
    assert_eq!((error.failed.pid, error.tid, &error.line), (0, None, &kept_error.line));
    let ended = error.ended.as_ref().unwrap();
    assert_eq!((kept_error.ended.as_ref(), kept_error.failed.pid), (None, 4242));
    let fields = |error: &ErrorReport| {
        let (failed, arguments) = (error.failed.clone(), error.arguments.clone());
        (
            failed.call,
            failed.code,
            failed.category,
            error.calls,
            error.first_at_ns,
            error.last_at_ns,
            arguments,
        )
    };
    assert_eq!(fields(error), fields(kept_error));
    let text = unkept.to_text(&TextOptions::default());
    assert!(text.contains(", 1 process"), "{text}");
    assert!(text.contains(&format!("{ended}: {} returned", error.failed.call)), "{text}");
}

#[test]
fn missing_times_of_processes_that_are_not_kept_have_a_reason() {
    let [kept, unkept] = [9, 0].map(|processes_max| {
        let mut tape = Tape::new(false);
        tape.launch(20, 256, Some(5_000));
        tape.launch(20, 256, None);
        let model = Model::keeping(Aggregates::default(), processes_max);
        let (totals, aggregates) = tape.end_in(model, ProcessEnd::Exec, Counters::default());
        Report::new(&totals, &aggregates)
    });
    assert_eq!((kept.counts.untimed_operations, unkept.counts.untimed_operations), (1, 1));
    assert!(kept.notices[0].text.contains("process 4242 replaced itself"), "{:?}", kept.notices);
    let [cause, together] = &unkept.notices[..] else { panic!("{:?}", unkept.notices) };
    assert_eq!(std::slice::from_ref(cause), kept.notices);
    assert_eq!(together.severity, "information");
    assert!(
        together.text.starts_with("1 process that ended is told together with others"),
        "{}",
        together.text
    );
}

#[test]
fn graphs_of_process_groups_have_the_group_s_name() {
    let mut tape = Tape::new(false);
    tape.launch(20, 256, Some(5_000));
    let (totals, aggregates) = tape.play(Counters::default());
    let mut report = Report::new(&totals, &aggregates);
    let graph = |ended| GraphReport {
        pid: 0,
        ended,
        graph: Some(3),
        label: "graph 3".to_owned(),
        nodes: None,
        calls: 7,
        timed_calls: 7,
        spread: Spread::default(),
    };
    let command = ["python", "serve.py"].map(str::to_owned).to_vec();
    let name = EndedName::new(&ProcessInfo { command, rank: Some(1), ..ProcessInfo::default() });
    report.graphs = vec![graph(Some(name)), graph(None)];
    let text = report.to_text(&TextOptions::default());
    let row = |graph: &str| text.lines().any(|line| line.trim().starts_with(&format!("{graph}  ")));
    assert!(row("graph 3 of python serve.py [rank 1, ended]") && row("graph 3"), "{text}");
}
