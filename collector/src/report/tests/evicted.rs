//! Evicted processes: they are in all sums, and their rows are not in the report.

use std::io::Cursor;
use std::path::Path;

use gputrace_wire::counter::Counter;
use proptest::prelude::*;

use crate::aggregate::Aggregates;
use crate::batch::{Batch, Counters, ProcessBegin, ProcessEnd};
use crate::flame::{Flame, FlameWeight};
use crate::model::Model;
use crate::report::tests::tape::Tape;
use crate::report::{Report, TextOptions};
use crate::trace_file::{TraceReader, TraceWriter};

/// A tape's report, and its flamegraph's time, where the process is kept and where it is evicted.
fn kept_and_evicted(end: ProcessEnd, fill: impl Fn(&mut Tape) -> Counters) -> [(Report, u64); 2] {
    [9, 0].map(|processes_max| {
        let mut tape = Tape::new(false);
        let counters = fill(&mut tape);
        let model = Model::keeping(Aggregates::default(), processes_max);
        let (totals, aggregates) = tape.end_in(model, end, counters);
        (Report::new(&totals, &aggregates), Flame::new(&totals, &aggregates).total_ns())
    })
}

#[test]
fn evicted_process_is_in_all_sums_and_said_to_be_evicted() {
    let [(kept, kept_ns), (evicted, evicted_ns)] = kept_and_evicted(ProcessEnd::Exit, |tape| {
        tape.launch(20, 256, Some(5_000));
        tape.launch(20, 256, Some(5_000));
        tape.copy(11, 1, 1 << 20, 7_000);
        tape.wait(9_000);
        tape.refuse(2);
        let mut counters = Counters { sampled_hooks: 2, sampled_ticks: 100, ..Counters::default() };
        counters.values[Counter::RecordsDelivered as usize] = 2;
        counters.values[Counter::RecordTicks as usize] = 700;
        counters.values[Counter::RecordLagMaxNs as usize] = 30;
        counters
    });
    assert_eq!((kept.processes.len(), evicted.processes.len()), (1, 0));
    assert_eq!((kept.dropped.len(), evicted.dropped["processes_not_kept"]), (0, 1));
    assert_eq!((&evicted.counts, &evicted.cost), (&kept.counts, &kept.cost));
    assert_eq!((&evicted.transfers, &evicted.call_classes), (&kept.transfers, &kept.call_classes));
    assert_eq!((kept.cost.records, kept.cost.sampled_hooks), (2, 2));
    assert_eq!((evicted_ns, kept_ns), (17_000, 17_000));
    // No record was lost.
    assert!(kept.devices[0].idle_ns.is_some());
    assert_eq!(evicted.devices[0].idle_ns, kept.devices[0].idle_ns);
    // Rows by name become one.
    assert_eq!(
        (evicted.kernels.len(), evicted.other_kernels.calls, evicted.other_kernels.total_ns),
        (0, 2, 10_000)
    );
    let [calls] = &evicted.calls[..] else { panic!("{:?}", evicted.calls) };
    let all: u64 = kept.calls.iter().map(|call| call.calls).sum();
    assert_eq!((calls.name.as_str(), calls.calls, calls.failed), ("(other)", all, 1));
    assert_eq!((kept.threads_left_out, evicted.threads_left_out), (0, kept.threads.len() as u64));
    assert_eq!((kept.errors.list.len(), kept.errors.left_out), (1, 0));
    assert_eq!((evicted.errors.calls, evicted.errors.list.len(), evicted.errors.left_out), (1, 0, 1));

    let sums = evicted.evicted_processes.as_ref().unwrap();
    assert_eq!((kept.evicted_processes.as_ref(), sums.processes, sums.failed), (None, 1, 0));
    assert_eq!(
        (sums.launches, sums.copies, sums.executed_operations, sums.device_total_ns),
        (2, 1, 3, 17_000)
    );
    let text = evicted.to_text(&TextOptions::default()).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(", 1 process"), "{text}");
    let said = "1 process that exited is not listed: its 2 launches, 3 executed operations with 17.0 µs of device \
                time are in the sums only";
    assert!(text.contains(said), "{text}");
}

#[test]
fn evicted_process_without_device_times_has_a_reason() {
    let [(kept, _), (evicted, _)] = kept_and_evicted(ProcessEnd::Exec, |tape| {
        tape.launch(20, 256, Some(5_000));
        tape.launch(20, 256, None);
        Counters::default()
    });
    assert_eq!((kept.counts.untimed_operations, evicted.counts.untimed_operations), (1, 1));
    assert!(kept.notices[0].text.contains("process 4242 replaced itself"), "{:?}", kept.notices);
    let [cause, sums] = &evicted.notices[..] else { panic!("{:?}", evicted.notices) };
    assert_eq!((std::slice::from_ref(cause), sums.severity), (&kept.notices[..], "information"));
}

/// The batches of a tape under another process's number, without those of its session.
fn batches_of(tape: Tape, number: u32) -> Vec<Batch> {
    let mut batches = tape.batches_of_process();
    for batch in &mut batches {
        match batch {
            Batch::ProcessBegin(begin) => {
                *begin = ProcessBegin { process: number, pid: 100 + number, ..begin.clone() }
            }
            Batch::Definitions { process, .. }
            | Batch::Cells { process, .. }
            | Batch::ProcessEnd { process, .. } => {
                *process = number;
            }
            Batch::Counters(counters) => counters.process = number,
            _ => {}
        }
    }
    batches
}

/// Processes that each launch so often, and exit in an order that their turns decide.
fn session(launches: &[usize], turns: &[usize]) -> Vec<Batch> {
    let mut queues: Vec<std::vec::IntoIter<Batch>> = (0..)
        .zip(launches)
        .map(|(number, launches)| {
            let mut tape = Tape::new(false);
            (0..*launches).for_each(|at| tape.launch(20, 256, (at % 3 < 2).then_some(1_000)));
            if launches % 2 == 0 {
                tape.fail(700);
            }
            batches_of(tape, number).into_iter()
        })
        .collect();
    let mut stream = Tape::new(false).batches_of_session();
    // Processes are numbered in the order in which they begin.
    queues.iter_mut().for_each(|queue| stream.extend(queue.next()));
    for turn in turns {
        let at = turn % queues.len();
        stream.extend(queues[at].by_ref().take(2));
    }
    queues.into_iter().for_each(|queue| stream.extend(queue));
    stream.push(Batch::SessionEnd { wall_ns: 1_000_000_000 });
    stream
}

fn report_of<'b>(batches: impl Iterator<Item = &'b Batch>, processes_max: usize) -> Report {
    let mut model = Model::keeping(Aggregates::default(), processes_max);
    batches.for_each(|batch| model.consume(batch));
    let (totals, aggregates) = model.finish();
    let flame = Flame::new(&totals, &aggregates);
    assert!(flame.weight == FlameWeight::Host || flame.total_ns() == totals.counts.device_ns);
    Report::new(&totals, &aggregates)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn eviction_keeps_sums_and_is_the_same_from_the_file(
        launches in prop::collection::vec(0usize..9, 1..12),
        turns in prop::collection::vec(any::<usize>(), 0..40),
        kept in 0usize..8,
    ) {
        let batches = session(&launches, &turns);
        let whole = report_of(batches.iter(), usize::MAX);
        let live = report_of(batches.iter(), kept);

        let path = std::env::temp_dir().join(format!("gputrace-evicted-{}", std::process::id()));
        let mut writer = TraceWriter::create(&path).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        drop(writer);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let length = bytes.len() as u64;
        let reader = TraceReader::new(Cursor::new(bytes), length, Path::new("evicted")).unwrap();
        let read: Vec<Batch> = reader.collect();
        let file = report_of(read.iter(), kept);
        prop_assert_eq!(serde_json::to_value(&live).unwrap(), serde_json::to_value(&file).unwrap());

        let evicted = launches.len().saturating_sub(kept) as u64;
        prop_assert_eq!(live.processes.len() as u64 + evicted, launches.len() as u64);
        let sums = live.evicted_processes.clone().unwrap_or_default();
        prop_assert_eq!((sums.processes, live.dropped.get("processes_not_kept").copied().unwrap_or(0)), (evicted, evicted));
        prop_assert_eq!((&live.counts, &live.transfers, &live.call_classes), (&whole.counts, &whole.transfers, &whole.call_classes));
        let kernels = |report: &Report| {
            let rows = report.kernels.iter().map(|kernel| (kernel.calls, kernel.spread.total_ns.unwrap_or(0)));
            rows.chain([(report.other_kernels.calls, report.other_kernels.total_ns)])
                .fold((0, 0), |(calls, ns), (more, more_ns)| (calls + more, ns + more_ns))
        };
        prop_assert_eq!(kernels(&live), kernels(&whole));
        let listed: u64 = live.processes.iter().map(|process| process.launches).sum();
        prop_assert_eq!(listed + sums.launches, whole.counts.launches);
        let failures = live.failures.len() as u64 + sums.failed;
        prop_assert_eq!(failures, whole.failures.len() as u64);
        let errors = |report: &Report| report.errors.list.iter().map(|error| error.calls).sum::<u64>() + report.errors.left_out;
        prop_assert_eq!(errors(&live), errors(&whole));
    }
}
