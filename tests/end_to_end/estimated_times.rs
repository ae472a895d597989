//! Sessions by windows: GPU time of everything is estimated from what was timed. On the simulated device it
//! is known.

use serde_json::Value;

use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{Traced, count, gputrace, run_with};

/// What the program's kernels take on the simulated device.
const FIRST_NS: u64 = 20_000;
const SECOND_NS: u64 = 50_000;

fn windows(graph_times: &str) -> Traced {
    let options = ["--device-times", "windows=10ms/50ms", "--graph-times", graph_times];
    run_with(&options, compiled("windows", Link::Driver)).arg("1").arg("2000").succeed()
}

fn estimate<'a>(report: &'a Value, kernel: &str) -> &'a Value {
    let kernels = report["kernels"].as_array().unwrap();
    &kernels.iter().find(|known| known["name"] == kernel).unwrap()["estimate"]
}

#[test]
fn kernels_get_the_time_that_they_took_though_a_fifth_was_timed() {
    for graph_times in ["node", "graph"] {
        let traced = windows(graph_times);
        let report = traced.report();
        let (launches, graphs) = (count(&report, "launches"), count(&report, "graph_launches"));
        // Half of the launches are of either kernel, and a graph has three of the first.
        let nodes = if graph_times == "node" { 3 * graphs } else { 0 };
        for (kernel, calls, each_ns) in
            [("first_kernel", launches / 2 + nodes, FIRST_NS), ("second_kernel", launches / 2, SECOND_NS)]
        {
            let estimate = estimate(&report, kernel);
            assert_eq!(count(estimate, "unmeasured_calls"), 0, "{estimate:#}");
            // Each took the same time, so the error is the least that is ever stated, a thousandth.
            let least_ns = count(estimate, "estimated_calls") * each_ns / 1_000;
            assert_eq!(
                (count(estimate, "total_ns"), count(estimate, "error_ns")),
                (calls * each_ns, least_ns)
            );
        }
        let all = &report["estimate"];
        assert!(count(all, "windows") > 10, "{all:#}");
        assert_eq!(count(all, "window_operations_lost"), 0, "{all:#}");
        assert_eq!(count(all, "measured_calls"), count(&report, "timed_operations"));
        if graph_times == "graph" {
            let graph = &report["graphs"][0]["estimate"];
            assert_eq!(count(graph, "total_ns"), graphs * 3 * FIRST_NS, "{graph:#}");
        }
        let folded = std::fs::read_to_string(traced.output.join("flame.folded")).unwrap();
        let weights = folded.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        assert!((weights.sum::<u64>() * 1_000).abs_diff(count(all, "total_ns")) < 2_000);
        let svg = std::fs::read_to_string(traced.output.join("flame.svg")).unwrap();
        assert!(svg.contains(" of GPU time, estimated ±"));
        let summary = traced.summary_words();
        assert!(summary.contains("Estimated GPU time from "), "{summary}");
    }
}

#[test]
fn export_of_single_operations_warns_that_only_a_part_has_times() {
    let traced = windows("node");
    let output = traced.output.join("trace.json");
    let export =
        finish(gputrace().args(["export", "--format", "chrome", "-o"]).arg(&output).arg(traced.trace()))
            .expect_code(0);
    assert!(export.stderr.contains("device times were taken for a part of the time: "), "{}", export.stderr);
}

/// What `scripts/check-windows` does over recordings of a GPU.
#[test]
fn windows_drawn_over_a_full_recording_estimate_its_times() {
    let options = ["--graph-times", "node"];
    let traced = run_with(&options, compiled("windows", Link::Driver)).arg("1").arg("1000").succeed();
    let truth = traced.report();
    assert!(truth["estimate"].is_null());
    let drawn =
        |plan: &str| finish(gputrace().args(["report", "--json", "--windows", plan]).arg(traced.trace()));
    let ended = drawn("10ms/50ms,4").expect_code(0);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["device_times"], "windows");
    assert_eq!(count(&report, "launches"), count(&truth, "launches"));
    for known in truth["kernels"].as_array().unwrap() {
        let name = known["name"].as_str().unwrap();
        assert_eq!(estimate(&report, name)["total_ns"], known["total_ns"], "{name}");
    }
    let refused = drawn("50ms/10ms").expect_code(2);
    assert!(refused.stderr.contains("a window must be shorter"), "{}", refused.stderr);
}
