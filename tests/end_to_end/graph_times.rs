//! `--graph-times`: launches of graphs timed by node, as a whole, or whichever fits.

use serde_json::Value;

use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{Run, Traced, bare_command, calls, count, dropped, gputrace, run_with};

/// A run of a graph: its number of nodes, their nanoseconds, and for how many milliseconds it is launched.
/// Three more numbers are for a second graph.
fn with<const N: usize>(options: &[&str], program: [u32; N]) -> Run {
    let run = run_with(options, compiled("graph_times", Link::Driver));
    program.iter().fold(run, |run, number| run.arg(number.to_string()))
}

fn launches(traced: &Traced) -> u64 {
    traced.ended.stdout.trim().parse().unwrap()
}

/// What holds in every mode: launches are exact, nothing is lost, and each launch is timed once.
fn check(traced: &Traced, nodes: u64, node_ns: u64) -> Value {
    let report = traced.report();
    let launches = launches(traced);
    assert_eq!(count(&report, "graph_launches"), launches);
    assert_eq!((count(&report, "launches"), dropped(&report)), (2, 0), "{report:#}");
    assert_eq!(count(&report, "device_only"), 0);
    let whole = report["whole_graphs"]["calls"].as_u64().unwrap();
    assert_eq!(count(&report, "graph_node_calls"), calls(&report, "node_kernel"));
    assert_eq!(calls(&report, "node_kernel") + whole * nodes, launches * nodes, "{report:#}");
    assert_eq!(count(&report, "executed_operations"), 2 + whole + calls(&report, "node_kernel"));
    assert_eq!(report["device_time_coverage"], 1.0);
    let kernels =
        report["kernels"].as_array().unwrap().iter().map(|kernel| kernel["total_ns"].as_u64().unwrap());
    let device_ns = kernels.sum::<u64>() + report["whole_graphs"]["total_ns"].as_u64().unwrap();
    assert_eq!(device_ns, launches * nodes * node_ns + 20_000 + 50_000);
    report
}

fn summary(traced: &Traced) -> String {
    traced.read("summary.txt").lines().find(|line| line.starts_with("Graphs     ")).unwrap().to_owned()
}

#[test]
fn option_times_graphs_by_node_or_by_graph() {
    let by_node = with(&["--graph-times", "node"], [40, 2_000, 0]).succeed();
    let report = check(&by_node, 40, 2_000);
    assert_eq!(report["whole_graphs"]["calls"], 0);
    assert_eq!(report["graph_times"][0]["reason"], "asked");
    assert_eq!(summary(&by_node), "Graphs     by node, as asked");

    let by_graph = with(&["--graph-times", "graph"], [40, 2_000, 0]).succeed();
    let report = check(&by_graph, 40, 2_000);
    assert_eq!(
        (report["whole_graphs"]["calls"].as_u64(), &report["graphs"][0]["nodes"]),
        (Some(3), &40.into())
    );
    let change = &report["graph_times"][0];
    assert_eq!((&change["mode"], &change["reason"]), (&"graph".into(), &"asked".into()));
    assert_eq!(summary(&by_graph), "Graphs     by graph, as asked");
    let graph = report["graphs"][0]["label"].as_str().unwrap();
    assert!(graph.starts_with("graph ") && graph.ends_with(" (40 nodes)"), "{graph}");
    let folded = by_graph.read("flame.folded");
    assert!(folded.contains(&format!(";cuGraphLaunch;{graph} 240\n")), "{folded}");
    let again =
        finish(gputrace().args(["flamegraph", "--folded"]).arg(by_graph.trace())).expect_code(0).stdout;
    assert_eq!(again, folded);
}

#[test]
fn many_short_nodes_are_timed_by_graph_and_reported() {
    let traced = with(&[], [512, 1_000, 1_500]).succeed();
    let report = check(&traced, 512, 1_000);
    let changes = report["graph_times"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{report:#}");
    assert_eq!((&changes[0]["mode"], &changes[0]["reason"]), (&"graph".into(), &"many_short_nodes".into()));
    // A launch whose records are in two windows is counted in one, and its nodes in each.
    let nodes = changes[0]["nodes_per_launch"].as_f64().unwrap();
    assert!((256.0..=1024.0).contains(&nodes) && changes[0]["mean_node_ns"] == 1_000.0, "{report:#}");
    let whole = report["whole_graphs"]["calls"].as_u64().unwrap();
    assert!(whole > 0 && calls(&report, "node_kernel") >= 4096, "{report:#}");
    let line = traced.read("summary.txt").replace("\n           ", " ");
    for part in [
        "on by graph, since nodes are many and short: about ",
        " a launch, of 1.00 µs on average (--graph-times node keeps their kernels)",
    ] {
        assert!(line.contains(part), "{line}");
    }
    // Those before and those after are both in the flamegraph.
    let folded = traced.read("flame.folded");
    for leaf in [";cuGraphLaunch;node_kernel ", "(512 nodes) "] {
        assert!(folded.contains(leaf), "{folded}");
    }
}

#[test]
fn few_or_long_nodes_stay_by_node() {
    let long = with(&[], [64, 20_000, 300]).succeed();
    assert_eq!(check(&long, 64, 20_000)["whole_graphs"]["calls"], 0);
    assert_eq!(summary(&long), "Graphs     by node");
    let few = with(&[], [4, 1_000, 300]).succeed();
    let report = check(&few, 4, 1_000);
    assert_eq!(
        (report["whole_graphs"]["calls"].as_u64(), report["graph_times"].as_array().unwrap().len()),
        (Some(0), 0)
    );
}

fn changes(report: &Value) -> Vec<(&str, &str)> {
    let changes = report["graph_times"].as_array().unwrap().iter();
    changes.map(|change| (change["mode"].as_str().unwrap(), change["reason"].as_str().unwrap())).collect()
}

const BY_GRAPH: (&str, &str) = ("graph", "many_short_nodes");
const LOOK: (&str, &str) = ("node", "looks_again");

/// After 15 s as a whole.
#[test]
fn nodes_that_stay_many_and_short_are_probed_and_timed_by_graph_again() {
    let traced = with(&[], [512, 1_000, 20_000]).succeed();
    let report = check(&traced, 512, 1_000);
    assert_eq!(changes(&report), [BY_GRAPH, LOOK, BY_GRAPH], "{report:#}");
    let at_s = |of: usize| report["graph_times"][of]["at_ns"].as_u64().unwrap() as f64 / 1e9;
    assert!(at_s(1) - at_s(0) >= 14.9, "{report:#}");
    let whole = report["whole_graphs"]["calls"].as_u64().unwrap();
    assert!(whole > launches(&traced) / 2, "{whole} of {}", launches(&traced));
    assert!(!summary(&traced).contains("again"), "{}", summary(&traced));
}

/// Which no whole launch tells.
#[test]
fn nodes_that_become_few_and_long_are_timed_by_node_again() {
    let traced = with(&[], [512, 1_000, 2_000, 20, 50_000, 17_000]).succeed();
    let report = traced.report();
    assert_eq!(changes(&report), [BY_GRAPH, LOOK], "{report:#}");
    let launches: Vec<u64> = traced.ended.stdout.lines().map(|line| line.parse().unwrap()).collect();
    let [first, later] = launches[..] else { panic!("{launches:?}") };
    assert_eq!((count(&report, "graph_launches"), dropped(&report)), (first + later, 0), "{report:#}");
    assert_eq!((&report["device_time_coverage"], count(&report, "device_only")), (&1.0.into(), 0));
    // Each launch is there in one form.
    let graphs = report["graphs"].as_array().unwrap();
    let whole = |nodes: u64| -> u64 {
        let of = graphs.iter().filter(|graph| graph["nodes"] == nodes);
        of.map(|graph| graph["calls"].as_u64().unwrap()).sum()
    };
    assert_eq!(whole(512) * 512 + calls(&report, "node_kernel"), first * 512, "{report:#}");
    assert_eq!(whole(20) * 20 + calls(&report, "later_kernel"), later * 20, "{report:#}");
    assert!(whole(20) > 0 && calls(&report, "later_kernel") > 20, "{report:#}");
    let kernels = report["kernels"].as_array().unwrap().iter();
    let device_ns: u64 = kernels.map(|kernel| kernel["total_ns"].as_u64().unwrap()).sum();
    let all_ns = device_ns + report["whole_graphs"]["total_ns"].as_u64().unwrap();
    assert_eq!(all_ns, first * 512_000 + later * 1_000_000 + 70_000);
    let line = traced.read("summary.txt").replace("\n           ", " ");
    assert!(line.contains("; by node again from "), "{line}");
}

#[test]
fn variable_asks_with_auto_collect() {
    let program = compiled("graph_times", Link::Driver);
    let run = |mode: &str| {
        let traced = bare_command(&program).env("GPUTRACE_GRAPH_TIMES", mode);
        check(&traced.arg("8").arg("3000").succeed(), 8, 3_000)["whole_graphs"]["calls"].as_u64().unwrap()
    };
    assert_eq!((run("graph"), run("node"), run("auto"), run("sometimes")), (3, 0, 0, 0));
    let ended = finish(gputrace().args(["run", "--graph-times", "whole", "true"])).expect_code(2);
    assert!(ended.stderr.contains("--graph-times"), "{}", ended.stderr);
}

#[test]
fn cupti_without_graph_records_is_reported_and_used_by_node() {
    let stub = compiled("trap_cupti_stub", Link::Shared);
    let run = with(&["--graph-times", "graph"], [8, 3_000, 0]).env("GPUTRACE_CUPTI", stub);
    let report = run.env("STUB_REFUSES", "51").succeed().report();
    assert_eq!(report["graph_times"][0]["reason"], "refused");
    assert!(report["notices"].to_string().contains("gives no records of whole graphs"), "{report:#}");
    assert_eq!((count(&report, "graph_launches"), count(&report, "launches")), (3, 2));
}
