//! Graphs and captures: what is executed and what is only recorded.

use crate::harness::tool::{calls, count, run, transfers};

#[test]
fn captured_launches_execute_nothing_and_graph_nodes_do() {
    let report = run("graph").succeed().report();
    assert_eq!(count(&report, "launches"), 1);
    assert_eq!(count(&report, "captured_launches"), 5);
    assert_eq!(count(&report, "graph_launches"), 20);
    assert_eq!(calls(&report, "first_kernel"), 100);
    assert_eq!(calls(&report, "second_kernel"), 1);
    assert_eq!(transfers(&report, "cpu_to_gpu"), (20, 20 * 4096));
    assert_eq!(count(&report, "device_only"), 0);
}
