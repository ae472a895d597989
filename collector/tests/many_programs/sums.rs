//! Reports of thousands of exited programs: rows as far as the tables go, and exact sums.

use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::flame::{Flame, GroupBy, RangePosition};
use gputrace_collector::label::Labels;
use gputrace_collector::report::{CallReport, Report};

use super::{LAUNCHES, Programs, growth, held_bytes};

/// Device times of each program: kernels with records, a copy and a graph, of 50 µs each.
const OPERATIONS: u64 = LAUNCHES - 2 + 2;
const OPERATION_NS: u64 = 50_000;

/// They have more calls, failures and graphs than the tables have rows.
const GONE: u32 = 6_000;

#[test]
fn sums_are_exact_however_many_programs_exited() {
    let mut programs = Programs::new(Aggregates::default());
    programs.until(GONE);
    // And that one runs on.
    programs.run(GONE);
    let (totals, aggregates) = programs.model.finish();
    let all = u64::from(GONE) + 1;
    let device_ns = all * OPERATIONS * OPERATION_NS;

    let mut labels = Labels::new(&totals, &aggregates);
    for (group_by, first) in
        [("process", "python short.py ["), ("rank,stream", "(no rank)"), ("device", "GPU 0 GPU")]
    {
        let group_by = GroupBy::parse(group_by).unwrap();
        let flame = Flame::with(&totals, &aggregates, &mut labels, RangePosition::None, &group_by);
        assert_eq!(flame.total_ns(), device_ns);
        assert!(flame.lines.iter().all(|line| line.frames[0].text.starts_with(first)), "{first}");
    }

    let report = Report::new(&totals, &aggregates);
    assert_eq!(report.processes.len() as u64, all);
    assert_eq!((report.counts.launches, totals.counts.device_ns), (all * LAUNCHES, device_ns));
    let [line] = &report.lines[..] else { panic!("{:?}", report.lines) };
    assert_eq!((line.charged_ns, report.no_line.calls, report.beyond_stacks.calls), (Some(device_ns), 0, 0));
    let calls = |calls: &[CallReport]| calls.iter().map(|call| call.calls).sum::<u64>();
    assert_eq!(calls(&report.calls), report.counts.host_calls);
    assert_eq!(calls(&report.call_classes), report.counts.host_calls);
    assert!(report.calls.iter().any(|call| call.name == "(other)"), "{:?}", report.calls);
    let launches = report.call_classes.iter().find(|call| call.class == "launch");
    assert_eq!(launches.map(|call| call.calls), Some(all * LAUNCHES));
    // Two launches of each have no record.
    let kernels = report.kernels.iter().map(|kernel| kernel.calls).sum::<u64>();
    assert_eq!(kernels + report.other_kernels.calls, all * LAUNCHES);
    let ranges = report.ranges.iter().filter(|range| range.name.starts_with("request "));
    assert_eq!(ranges.map(|range| range.calls).sum::<u64>(), all);
    assert_eq!(report.streams.len() as u64 + report.streams_left_out, all, "one each");

    // Each has two failed calls and a graph.
    let errors = &report.errors;
    assert!(errors.left_out > 0, "{}", errors.left_out);
    assert_eq!(errors.calls, 2 * all);
    assert_eq!(errors.list.iter().map(|error| error.calls).sum::<u64>() + errors.left_out, 2 * all);
    assert_eq!((report.graph_level.calls, report.graph_level.total_ns), (all, all * OPERATION_NS));
}

#[test]
fn aggregates_of_exited_programs_take_little_memory() {
    let (model_alone, programs) = growth(());
    drop(programs);
    let (bytes, programs) = growth(Aggregates::default());
    let each = (bytes - model_alone) / super::GROWTH as isize;
    let before = held_bytes();
    drop(programs);
    println!("{each} bytes a program more, {} in all", before - held_bytes());
    assert!(each < 21 << 7, "{each} bytes a program more");
}
