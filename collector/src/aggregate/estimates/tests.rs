use gputrace_wire::call::{Copy, Detail, Launch, direction};
use gputrace_wire::cell::{flag, kind};

use super::{Estimates, Estimation};
use crate::aggregate::{Leaf, NO_DEVICE, Owner, StackKey, Stacks};
use crate::model::definitions::Definitions;
use crate::model::operation::{
    Direction, GraphNode, HostCall, Kernel, Made, Operation, Timing, Verdict, What,
};

/// A kernel of a stack and a size, in a window (as on the wire), or without times.
fn kernel(stack: u32, blocks: u32, window: u32, ns: u64) -> Operation {
    let launch = Launch { function: 3, grid: [blocks, 1, 1], block: [64, 1, 1], ..Launch::default() };
    let call = HostCall { kind: kind::LAUNCH, stack, detail: Detail::Launch(launch), ..HostCall::default() };
    with(call, What::Kernel(Kernel { name: 9, ..Kernel::default() }), window, ns)
}

fn with(call: HostCall, what: What, window: u32, ns: u64) -> Operation {
    let flags = if window == 0 { flag::UNTIMED } else { 0 };
    Operation {
        process: call.process,
        what,
        timing: (window != 0).then_some(Timing { start_ns: 0, duration_ns: ns }),
        call: Some(HostCall { window, flags, ..call }),
        device: 0,
        context: 0,
        stream: 0,
        graph: None,
        verdict: Verdict::None,
    }
}

fn row(operation: &Operation) -> StackKey {
    let stack = operation.call.as_ref().map_or(0, |call| call.stack);
    StackKey { stack, ..StackKey::without_call(operation.process, NO_DEVICE, Leaf::Kernel(9)) }
}

fn estimated(operations: &[Operation]) -> Estimation {
    let mut estimates = Estimates::new(&Stacks::default());
    for operation in operations {
        estimates.operation(operation, row(operation), &Definitions::default());
    }
    Estimation::new(&estimates)
}

const fn scheduled(number: u32) -> u32 {
    number << 1
}

const fn triggered(number: u32) -> u32 {
    number << 1 | 1
}

#[test]
fn mean_is_of_the_same_stack_and_launch_configuration() {
    let all = estimated(&[
        kernel(1, 8, scheduled(1), 100),
        kernel(1, 8, scheduled(2), 140),
        kernel(1, 16, scheduled(2), 1_000),
        kernel(2, 8, scheduled(2), 7),
        kernel(1, 8, 0, 0),
        kernel(1, 8, 0, 0),
        kernel(1, 16, 0, 0),
    ]);
    let total = all.total();
    assert_eq!((total.calls, total.ns, total.unmeasured), (3, 120.0 * 2.0 + 1_000.0, 0));
    assert!(total.error_ns > 0.0);
    assert_eq!((all.windows.scheduled, all.windows.operations, all.windows.lost), (2, 4, 0));
}

#[test]
fn operations_like_none_that_was_timed_are_counted_and_not_estimated() {
    let of_other_function = |blocks| {
        let launch = Launch { function: 4, grid: [blocks, 1, 1], block: [64, 1, 1], ..Launch::default() };
        let detail = Detail::Launch(launch);
        let call = HostCall { kind: kind::LAUNCH, stack: 1, detail, ..HostCall::default() };
        with(call, What::Kernel(Kernel { name: 9, ..Kernel::default() }), 0, 0)
    };
    let timed = kernel(1, 8, scheduled(1), 100);
    let total = estimated(&[timed, of_other_function(8), of_other_function(9)]).total();
    assert_eq!((total.calls, total.ns, total.unmeasured), (0, 0.0, 2));
}

/// As a server whose requests each have a size of their own: a launch of 100 ns for each block.
#[test]
fn sizes_that_come_once_have_the_mean_of_others_that_do() {
    let mut operations = Vec::new();
    // One size that comes over and over, and takes much longer.
    for window in 1..=20 {
        operations.push(kernel(1, 5_000, scheduled(window), 900_000));
        operations.push(kernel(1, 5_000, 0, 0));
    }
    let mut truth = 20.0 * 900_000.0;
    for size in 1..=1_000 {
        let ns = u64::from(size) * 100;
        let window = if size % 10 == 3 { scheduled(size / 50 + 1) } else { 0 };
        operations.push(kernel(1, size, window, ns));
        truth += if window == 0 { ns as f64 } else { 0.0 };
    }
    let total = estimated(&operations).total();
    assert_eq!((total.calls, total.unmeasured), (920, 0));
    assert!((total.ns - truth).abs() < total.error_ns, "{} of {truth}, {}", total.ns, total.error_ns);
    assert!(total.error_ns < truth / 4.0, "{}", total.error_ns);
}

#[test]
fn stack_that_was_never_timed_has_the_mean_of_its_function() {
    let all = estimated(&[
        kernel(1, 8, scheduled(1), 100),
        kernel(1, 8, scheduled(2), 140),
        kernel(2, 8, 0, 0),
        kernel(2, 8, 0, 0),
    ]);
    let total = all.total();
    assert_eq!((total.calls, total.ns, total.unmeasured), (2, 240.0, 0));
    assert_eq!(all.rows()[0].key.stack, 2);
}

#[test]
fn error_is_a_thousandth_at_least() {
    let timed = (1..=9).map(|window| kernel(1, 8, scheduled(window), 1_000));
    let operations: Vec<_> = timed.chain((0..100).map(|_| kernel(1, 8, 0, 0))).collect();
    let total = estimated(&operations).total();
    assert_eq!((total.ns, total.error_ns), (100_000.0, 100.0));
}

#[test]
fn triggered_windows_enter_the_mean_only_where_there_is_nothing_else() {
    let first = [kernel(1, 8, triggered(1), 5_000), kernel(1, 8, 0, 0)];
    let total = estimated(&first).total();
    // The error of a first execution is not known: it may be all of it.
    assert_eq!((total.ns, total.error_ns), (5_000.0, 5_000.0));
    let later = [kernel(1, 8, scheduled(2), 100), kernel(1, 8, scheduled(3), 100)];
    let all = estimated(&[first.as_slice(), &later].concat());
    let total = all.total();
    assert_eq!((total.ns, total.error_ns), (100.0, 0.1));
    assert_eq!((all.windows.scheduled, all.windows.triggered), (2, 1));
}

#[test]
fn operation_of_a_window_without_a_record_is_a_loss_and_is_estimated() {
    let lost = Operation { timing: None, ..kernel(1, 8, scheduled(2), 0) };
    let all = estimated(&[kernel(1, 8, scheduled(1), 100), kernel(1, 8, scheduled(2), 100), lost]);
    assert_eq!((all.windows.operations, all.windows.lost), (3, 1));
    assert_eq!((all.total().calls, all.total().ns), (1, 100.0));
}

#[test]
fn copies_share_a_mean_by_size_and_those_of_the_host_are_left_out() {
    let copy = |bytes, direction, window, ns| {
        let detail = Detail::Copy(Copy { direction: direction::UNKNOWN, bytes, count: 1 });
        let call = HostCall { kind: kind::COPY, detail, ..HostCall::default() };
        let what = What::Copy { direction, bytes, source_memory: 0, target_memory: 0, devices: None };
        with(call, what, window, ns)
    };
    let total = estimated(&[
        copy(4_096, Direction::CpuToGpu, scheduled(1), 300),
        copy(1 << 20, Direction::CpuToGpu, scheduled(1), 90_000),
        copy(4_100, Direction::Unknown, 0, 0),
        copy(4_096, Direction::CpuToCpu, 0, 0),
        copy(0, Direction::Unknown, 0, 0),
    ])
    .total();
    assert_eq!((total.calls, total.ns, total.unmeasured), (1, 300.0, 0));
}

#[test]
fn nodes_of_graphs_are_estimated_by_the_launches_of_their_graph() {
    let launch = |window: u32| HostCall {
        kind: kind::GRAPH_LAUNCH,
        stack: 5,
        window,
        detail: Detail::GraphLaunch { graph: 2 },
        ..HostCall::default()
    };
    let node = |window, name, ns| {
        let made = Some(Made { stack: 40 + name, ranges: 0 });
        let what = What::Kernel(Kernel { name, ..Kernel::default() });
        let graph = Some(GraphNode { graph: 1, node: name.into(), nodes: 0, made });
        Operation { graph, ..with(launch(window), what, window, ns) }
    };
    let mut estimates = Estimates::new(&Stacks::default());
    let definitions = Definitions::default();
    let key = |name| StackKey {
        stack: 40 + name,
        owner: Owner::Capture { replay_stack: 5, replay_ranges: 0 },
        ..StackKey::without_call(0, NO_DEVICE, Leaf::Kernel(name))
    };
    for number in 1..=3 {
        estimates.graph_launch(&launch(scheduled(number)), &definitions);
        for (name, ns) in [(1, 100), (1, 100), (2, 1_000 + u64::from(number))] {
            estimates.operation(&node(scheduled(number), name, ns), key(name), &definitions);
        }
    }
    let whole = with(launch(0), What::Graph, 0, 0);
    let whole_key = StackKey { stack: 5, ..StackKey::without_call(0, NO_DEVICE, Leaf::Graph(1)) };
    (0..10).for_each(|_| estimates.operation(&whole, whole_key, &definitions));
    let estimation = Estimation::new(&estimates);
    let by_stack = estimation.sums(|row, stacks| stacks.push(row.key.stack));
    assert_eq!(by_stack.len(), 2);
    assert_eq!((by_stack[&41].ns, by_stack[&41].calls, by_stack[&41].error_ns), (2_000.0, 20, 2.0));
    assert_eq!((by_stack[&42].ns, by_stack[&42].calls), (10_020.0, 10));
    assert!(by_stack[&42].error_ns > 1.0);
    estimates.by_replay();
    let by_stack = Estimation::new(&estimates).sums(|row, stacks| stacks.push(row.key.stack));
    assert_eq!((by_stack.len(), by_stack[&5].ns), (1, 12_020.0));
}

#[test]
fn what_was_timed_before_the_first_switch_is_used_where_there_is_nothing_else() {
    let mut measured = Stacks::default();
    let off = kernel(1, 8, 0, 0);
    (0..4).for_each(|_| measured.add(row(&off), Some(50)));
    let mut estimates = Estimates::new(&measured);
    (0..3).for_each(|_| estimates.operation(&off, row(&off), &Definitions::default()));
    let total = Estimation::new(&estimates).total();
    assert_eq!((total.calls, total.ns, total.error_ns), (3, 150.0, 150.0));
}

#[test]
fn memory_is_bounded_and_what_does_not_fit_is_counted() {
    let mut estimates = Estimates::new(&Stacks::default());
    let definitions = Definitions::default();
    let mut add = |operation: &Operation| estimates.operation(operation, row(operation), &definitions);
    // More keys than have a mean.
    let stacks = (1 << 16) + 5;
    (0..stacks).for_each(|stack| add(&kernel(stack, 1, 0, 0)));
    // More windows than are told apart, with twenty keys each.
    for number in 1..60_000 {
        (0..20).for_each(|stack| add(&kernel(stack, 1, scheduled(number), 10 + u64::from(number % 2))));
    }
    let sums: usize = estimates.cells.iter().map(|(_, cell)| cell.units.len()).sum();
    assert!(sums <= 1 << 20, "{sums}");
    let estimation = Estimation::new(&estimates);
    let total = estimation.total();
    assert!(estimates.cells.len() < 1 << 16, "later keys share one");
    assert_eq!((total.calls, total.unmeasured), (u64::from(stacks), 0));
    assert!((total.ns - f64::from(stacks) * 10.5).abs() < 1.0, "{}", total.ns);
    assert_eq!(estimation.windows.scheduled, 59_999);
}
