//! Tests of graph launches with a record for each node, one record for all, or both.

use super::*;

#[test]
fn nodes_of_a_graph_launch_have_the_launch_as_their_call() {
    let mut feed = ModelFeed::new();
    let node = |node, at| kernel(Execution { graph_node: node, graph: 4, ..executed(8, at) });
    feed.cells(RECORDS, &[node(1, 100), node(2, 200)].concat());
    feed.cells(HOST, &[call(kind::GRAPH_LAUNCH, 8, 50, Detail::GraphLaunch { graph: 3 }).to_cell()]);
    feed.cells(RECORDS, &node(3, 300));
    feed.cells(HOST, &[launch(9, 60).to_cell()]);
    feed.cells(RECORDS, &node(4, 400));
    let (totals, seen) = feed.finish();
    let nodes: Vec<_> = seen.operations.iter().filter_map(|o| o.graph).map(|graph| graph.node).collect();
    assert_eq!(nodes, [1, 2, 3, 4]);
    assert!(seen.operations.iter().take(4).all(|o| o.call.as_ref().unwrap().kind == kind::GRAPH_LAUNCH));
    let counts = totals.counts;
    assert_eq!((counts.graph_launches, counts.launches, counts.executed, counts.timed), (1, 1, 5, 4));
}

#[test]
fn graph_launch_can_be_one_record_or_none() {
    let mut feed = ModelFeed::new();
    for correlation in [1, 2] {
        feed.cells(
            HOST,
            &[call(kind::GRAPH_LAUNCH, correlation, 50, Detail::GraphLaunch { graph: 3 }).to_cell()],
        );
    }
    feed.cells(RECORDS, &[DeviceGraph { execution: Execution { graph: 4, ..executed(1, 100) } }.to_cell()]);
    let (_, seen) = feed.finish();
    let whole: Vec<_> = seen.operations.iter().map(|o| (o.what, o.timing.is_some())).collect();
    assert_eq!(whole, [(What::Graph, true), (What::Graph, false)]);
}

/// A launch during a switch of forms may have both. No time counts twice, and none is missing.
#[test]
fn whole_launch_after_some_of_its_nodes_has_the_time_that_they_leave() {
    let launch = |id| call(kind::GRAPH_LAUNCH, id, 50, Detail::GraphLaunch { graph: 3 }).to_cell();
    let at = |id, start_ns, end_ns| Execution { graph: 4, start_ns, end_ns, ..executed(id, start_ns) };
    let whole = |id| [DeviceGraph { execution: at(id, 1_000, 31_000) }.to_cell()];
    let node = |id, node: u64| {
        let start_ns = 1_000 + node * 1_000;
        kernel(Execution { graph_node: 4u64 << 32 | node, ..at(id, start_ns, start_ns + 900) })
    };
    for call_first in [true, false] {
        let mut feed = ModelFeed::new();
        if call_first {
            feed.cells(HOST, &[launch(1)]);
        }
        feed.cells(
            RECORDS,
            &[node(1, 0).to_vec(), node(1, 1).to_vec(), whole(1).to_vec(), node(1, 2).to_vec()].concat(),
        );
        if !call_first {
            feed.cells(HOST, &[launch(1)]);
        }
        let (totals, seen) = feed.finish();
        let durations: Vec<_> =
            seen.operations.iter().map(|operation| operation.timing.unwrap().duration_ns).collect();
        assert_eq!(durations, [900, 900, 30_000 - 1_800], "{call_first}");
        assert_eq!(seen.operations[2].what, What::Graph);
        // The whole launch already includes the node after it.
        assert_eq!((totals.counts.executed, totals.counts.doubled_graph_records), (3, 1), "{call_first}");
    }
}

#[test]
fn graph_launch_in_both_forms_is_counted_in_the_first() {
    let launch = |id| call(kind::GRAPH_LAUNCH, id, 50, Detail::GraphLaunch { graph: 3 }).to_cell();
    let whole = |id| [DeviceGraph { execution: Execution { graph: 4, ..executed(id, 100) } }.to_cell()];
    let node = |id, node| kernel(Execution { graph_node: 4u64 << 32 | node, graph: 4, ..executed(id, 100) });
    let mut feed = ModelFeed::new();
    // By node first, with the call before or after; as a whole first, likewise.
    feed.cells(HOST, &[launch(1)]);
    feed.cells(RECORDS, &node(1, 0));
    feed.cells(RECORDS, &whole(1));
    feed.cells(RECORDS, &node(1, 1));
    feed.cells(RECORDS, &node(2, 0));
    feed.cells(RECORDS, &whole(2));
    feed.cells(HOST, &[launch(2), launch(3)]);
    feed.cells(RECORDS, &whole(3));
    feed.cells(RECORDS, &[node(3, 0), node(3, 1)].concat());
    feed.cells(RECORDS, &whole(4));
    feed.cells(RECORDS, &node(4, 0));
    feed.cells(HOST, &[launch(4)]);
    let (totals, seen) = feed.finish();
    let is_whole: Vec<_> = seen.operations.iter().map(|operation| operation.what == What::Graph).collect();
    assert_eq!(is_whole, [false, false, false, true, true]);
    let counts = totals.counts;
    assert_eq!((counts.executed, counts.timed, counts.device_only), (5, 5, 0));
    assert_eq!((counts.graph_launches, counts.doubled_graph_records), (4, 5));
}

#[test]
fn late_node_of_a_launch_that_is_to_be_left_out_is_left_out() {
    let graph_launch =
        |flags, id| Call { flags, ..call(kind::GRAPH_LAUNCH, id, 50, Detail::GraphLaunch { graph: 3 }) };
    let node = |id| kernel(Execution { graph_node: 4u64 << 32, graph: 4, ..executed(id, 100) });
    for (flags, counted) in [(flag::PAUSED, (0, 2)), (0, (2, 0))] {
        let mut feed = ModelFeed::new();
        feed.cells(HOST, &[graph_launch(flags, 1).to_cell()]);
        // As many ids later as the join has slots.
        feed.cells(HOST, &[launch(1 + (1 << 15), 60).to_cell()]);
        feed.cells(RECORDS, &[node(1), node(1)].concat());
        let (totals, _) = feed.finish();
        let of_launches = (totals.counts.timed, totals.counts.paused_records);
        assert_eq!(of_launches, counted, "{flags}");
        assert_eq!(totals.counts.device_only, 0, "{flags}");
    }
}
