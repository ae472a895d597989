//! What reports tell of programs that are gone, however many there were: their lines, calls, kernels, failures and
//! ranges by name, sums that are whole, and memory that does not grow.

use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::flame::{Flame, FlameLine, GroupBy, RangePosition};
use gputrace_collector::label::Labels;
use gputrace_collector::report::{Report, TextOptions};

use super::{LAUNCHES, Standing, growth, held_bytes};

/// Device times of each program: kernels with records, a copy and a graph, of 50 µs each.
const OPERATIONS: u64 = LAUNCHES - 2 + 2;
const OPERATION_NS: u64 = 50_000;

/// Some thousand programs have more calls than are told apart one by one.
const GONE: u32 = 6_000;

#[test]
fn lines_calls_and_ranges_are_told_apart_however_many_programs_ended() {
    let mut standing = Standing::new(Aggregates::default());
    standing.until(GONE);
    // And that one runs on.
    standing.run(GONE);
    let (totals, aggregates) = standing.model.finish();
    assert!(totals.told_together > u64::from(GONE) / 4, "{}", totals.told_together);
    let all = u64::from(GONE) + 1;

    let flame = Flame::new(&totals, &aggregates);
    assert_eq!(flame.total_ns(), all * OPERATIONS * OPERATION_NS);
    let texts = |line: &FlameLine| -> Vec<String> {
        line.frames.iter().map(|frame| frame.text.to_string()).collect()
    };
    // However it is divided.
    let mut labels = Labels::new(&totals, &aggregates);
    for (group_by, first) in
        [("process", "python short.py ["), ("rank,stream", "(no rank)"), ("device", "GPU 0 GPU")]
    {
        let group_by = GroupBy::parse(group_by).unwrap();
        let flame = Flame::with(&totals, &aggregates, &mut labels, RangePosition::None, &group_by);
        assert_eq!(flame.total_ns(), all * OPERATIONS * OPERATION_NS);
        assert!(flame.lines.iter().all(|line| texts(line)[0].starts_with(first)), "{first}");
    }
    let (mut ended_ns, mut running_ns) = (0, 0);
    let running = format!("python short.py [{}]", 1_000 + GONE);
    for line in &flame.lines {
        let frames = texts(line);
        assert!(!frames.iter().any(|frame| frame.starts_with("(other)")), "{frames:?}");
        assert!(frames.iter().any(|frame| frame == "main short.py:3"), "{frames:?}");
        match &frames[..2] {
            [process, thread] if thread == "main" && process == "python short.py [ended]" => {
                ended_ns += line.ns;
                assert!(frames[2].starts_with("request "), "{frames:?}");
            }
            [process, _] if *process == running => running_ns += line.ns,
            _ => {}
        }
    }
    assert_eq!(ended_ns, totals.told_together * OPERATIONS * OPERATION_NS);
    assert_eq!(running_ns, OPERATIONS * OPERATION_NS);

    let report = Report::new(&totals, &aggregates);
    assert_eq!(report.counts.launches, all * LAUNCHES);
    assert_eq!((report.beyond_stacks.calls, report.no_line.calls), (0, 0));
    let [line] = &report.lines[..] else { panic!("{:?}", report.lines) };
    assert_eq!(line.charged_ns, Some(all * OPERATIONS * OPERATION_NS));
    let launches = report.calls.iter().filter(|call| call.name == "cuLaunchKernel" && call.class == "launch");
    assert_eq!(launches.map(|call| call.calls).collect::<Vec<_>>(), [all * LAUNCHES]);
    assert!(report.calls.iter().all(|call| call.name != "(other)"), "{:?}", report.calls);
    // Two launches of each have no record.
    assert_eq!(report.kernels.iter().map(|kernel| kernel.calls).sum::<u64>(), all * LAUNCHES);
    assert_eq!(report.other_kernels.calls, 0);
    let ranges = report.ranges.iter().filter(|range| range.name.starts_with("request "));
    assert_eq!(ranges.map(|range| range.calls).sum::<u64>(), all);
    assert_eq!(report.streams.len() as u64 + report.streams_left_out, all, "one each");
    let notices: Vec<_> = report.notices.iter().filter(|notice| notice.text.contains("[ended]")).collect();
    assert_eq!((notices.len(), notices[0].severity), (1, "information"));
}

/// Each has two failed calls and a graph: more than are told apart.
#[test]
fn failures_and_graphs_of_what_runs_have_room_however_many_programs_ended() {
    let mut standing = Standing::new(Aggregates::default());
    standing.until(GONE);
    standing.run(GONE);
    let (totals, aggregates) = standing.model.finish();
    let (all, running) = (u64::from(GONE) + 1, 1_000 + GONE);
    let report = Report::new(&totals, &aggregates);

    let errors = &report.errors;
    assert_eq!((errors.calls, errors.left_out, errors.after_context_lost), (2 * all, 0, 0));
    assert_eq!(errors.list.iter().map(|error| error.calls).sum::<u64>(), 2 * all);
    assert_eq!(errors.list.iter().filter(|error| error.failed.pid == running).count(), 2);
    let ended: Vec<_> = errors.list.iter().filter(|error| error.ended.is_some()).collect();
    let told: Vec<_> =
        ended.iter().map(|error| (error.failed.call.as_str(), error.failed.code, error.calls)).collect();
    let together = totals.told_together;
    assert_eq!(told, [("cuMemAlloc_v2", 2, together), ("cuStreamSynchronize", 700, together)]);
    for error in ended {
        assert_eq!(
            (error.ended.as_ref().map(ToString::to_string), error.failed.pid),
            (Some("python short.py [ended]".to_owned()), 0)
        );
        let line = error.line.as_ref().map(|line| (line.function.as_str(), line.line));
        assert_eq!((line, error.stack.len()), (Some(("main", Some(3))), 1));
        assert!((1..super::LENGTH_NS).contains(&error.first_at_ns), "{error:?}");
    }

    // Each lost its context, which is told of as its failure; three of the others are shown.
    let text = report.to_text(&TextOptions { width: 100, ..TextOptions::default() });
    assert!(text.contains("and 5,998 more calls, in the JSON by line"), "{text}");
    assert!(text.contains("graph 3 of python short.py [ended]"), "{text}");

    let graphs = aggregates.graphs.total();
    assert_eq!((graphs.calls, aggregates.graphs.other().calls), (all, 0));
    assert_eq!((report.graph_level.calls, report.graph_level.total_ns), (all, all * OPERATION_NS));
    let of_running = aggregates.graphs.sorted().iter().filter(|(key, _)| key.process == GONE).count();
    assert_eq!(of_running, 1);
    // Those of one name are one.
    let most = report.graphs.first().map(|graph| (graph.pid, graph.graph, graph.calls));
    assert_eq!(most, Some((0, Some(3), together)));
}

#[test]
fn of_programs_that_are_gone_aggregates_hold_what_is_told_apart() {
    let (model_alone, standing) = growth(());
    drop(standing);
    let (bytes, standing) = growth(Aggregates::default());
    let each = (bytes - model_alone) / super::GROWTH as isize;
    let before = held_bytes();
    drop(standing);
    println!("{each} bytes a program more, {} in all", before - held_bytes());
    assert!(each < 1 << 10, "{each} bytes a program more");
}
