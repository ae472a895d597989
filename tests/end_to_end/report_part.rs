//! `gputrace report --filter … --from … --to …` and `--tree`: the report of a part, and of stacks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::{Ended, finish};
use crate::harness::tool::{gputrace, run};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{name}-h200.gputrace"))
}

fn asked(command: &str, arguments: &[&str], trace: &Path) -> Ended {
    finish(gputrace().arg(command).args(arguments).arg(trace))
}

fn json(arguments: &[&str], trace: &Path) -> Value {
    let ended = asked("report", &[&["--json"], arguments].concat(), trace).expect_code(0);
    serde_json::from_str(&ended.stdout).expect("it is JSON")
}

/// Selections of which each takes something of the recorded demo, and leaves something out.
const SELECTIONS: [&[&str]; 5] = [
    &["--filter", "kernel=*gemm*"],
    &["--filter", "kernel=adam_step,device=0", "--filter", "kernel=softmax"],
    &["--from", "190ms", "--to", "200ms"],
    &["--from", "195ms", "--filter", "kernel=gemm_*"],
    &["--to", "0.2"],
];

/// The same of a run of `gputrace demo` today, whose trace has ranges.
const OF_RANGES: [&[&str]; 2] =
    [&["--filter", "range=forward"], &["--filter", "range=backward,kernel=gemm_*", "--filter", "range=none"]];

/// A trace of the demo, on the simulated device.
fn demo(folder: &Folder) -> PathBuf {
    finish(gputrace().args(["demo", "-o"]).arg(folder.join("out"))).expect_code(0);
    folder.join("out")
}

/// Calls and ns by kernel.
type Kernels = BTreeMap<String, (u64, u64)>;

fn reported(report: &Value) -> Kernels {
    let kernels = report["kernels"].as_array().unwrap().iter();
    let row = |kernel: &Value| {
        let name = kernel["name"].as_str().unwrap().to_owned();
        (name, (kernel["calls"].as_u64().unwrap(), kernel["total_ns"].as_u64().unwrap()))
    };
    kernels.map(row).collect()
}

/// From the durations in the Chrome format, in µs with three decimals.
fn exported(arguments: &[&str], trace: &Path) -> Kernels {
    let arguments = [&["--format", "chrome", "-o", "-"], arguments].concat();
    let ended = asked("export", &arguments, trace).expect_code(0);
    let all: Value = serde_json::from_str(&ended.stdout).unwrap();
    let mut kernels = Kernels::new();
    for event in all["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == "kernel") {
        let sum = kernels.entry(event["name"].as_str().unwrap().to_owned()).or_default();
        sum.0 += 1;
        sum.1 += (event["dur"].as_f64().unwrap() * 1e3).round() as u64;
    }
    kernels
}

/// The sum of the weights of folded lines, in µs, and of those that end in a kernel of the report.
fn folded(arguments: &[&str], trace: &Path) -> u64 {
    let text = asked("flamegraph", &[&["--folded"], arguments].concat(), trace).expect_code(0).stdout;
    let direct = asked("export", &[&["--format", "folded"], arguments].concat(), trace).expect_code(0).stdout;
    assert_eq!(text, direct, "{arguments:?}");
    text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn tables_of_a_part_are_those_of_exports_and_flamegraphs() {
    let folder = Folder::new();
    let recorded = SELECTIONS.map(|selection| (fixture("demo"), selection));
    let made = demo(&folder);
    let made = OF_RANGES.map(|selection| (made.clone(), selection));
    for (trace, selection) in recorded.iter().chain(&made) {
        let whole = reported(&json(&[], trace));
        let report = json(selection, trace);
        let kernels = reported(&report);
        assert!(!kernels.is_empty() && kernels != whole, "{selection:?}: {kernels:?}");
        assert_eq!(kernels, exported(selection, trace), "{selection:?}");
        let sum = |rows: &Value| -> u64 {
            rows.as_array().unwrap().iter().filter_map(|row| row["total_ns"].as_u64()).sum()
        };
        let moved = sum(&report["transfers"]) + report["memsets"]["total_ns"].as_u64().unwrap_or(0);
        let device_ns =
            sum(&report["kernels"]) + moved + report["whole_graphs"]["total_ns"].as_u64().unwrap();
        // Folded weights are rounded once, in the sum.
        assert!(folded(selection, trace).abs_diff(device_ns / 1_000) <= 1, "{selection:?}");
        // Every other table divides the same operations.
        let operations = report["executed_operations"].as_u64().unwrap();
        for table in ["threads", "streams", "devices"] {
            let rows = report[table].as_array().unwrap().iter();
            assert_eq!(
                rows.map(|row| row["operations"].as_u64().unwrap()).sum::<u64>(),
                operations,
                "{table}"
            );
        }
        let calls = report["calls"].as_array().unwrap().iter();
        let host_calls = report["host_calls"].as_u64().unwrap();
        assert_eq!(calls.map(|call| call["calls"].as_u64().unwrap()).sum::<u64>(), host_calls);
        assert_eq!(report["timed_operations"].as_u64(), Some(operations));
    }
}

/// What takes everything changes no figure, but for what a part does not have.
#[test]
fn report_of_everything_selected_is_the_whole_one() {
    let simulated = ["graph", "host_copies", "failing"].map(|program| run(program).go());
    let recorded = [fixture("demo"), fixture("pytorch")];
    for trace in recorded.iter().chain(simulated.iter().map(|traced| &traced.output)) {
        let mut whole = json(&[], trace);
        let mut part = json(&["--filter", "process=*"], trace);
        assert_eq!(part["part"]["filters"][0], "process=*");
        for report in [&mut whole, &mut part] {
            let top = report.as_object_mut().unwrap();
            for key in ["part", "findings", "memory", "cost", "ranges"] {
                top.remove(key);
            }
            for device in report["devices"].as_array_mut().unwrap() {
                for key in ["idle", "idle_ns", "idle_at_most_ns", "metrics"] {
                    device.as_object_mut().unwrap().remove(key);
                }
            }
            for process in report["processes"].as_array_mut().unwrap() {
                process.as_object_mut().unwrap().remove("hook_cost_ns");
            }
        }
        assert_eq!(part, whole, "{}", trace.display());
    }
}

#[test]
fn page_of_a_part_says_so_and_claims_nothing_of_the_whole() {
    let trace = fixture("demo");
    let page = asked("report", &["--filter", "kernel=*gemm*", "--from", "150ms", "--to", "230ms"], &trace);
    let page = page.expect_code(0).stdout;
    assert!(page.contains("Selected   kernel=*gemm*, from 150 ms to 230 ms: all below"), "{page}");
    assert!(page.contains("Wall time  80.0 ms,") && page.contains(" with this part"), "{page}");
    for word in ["idle", "Findings", "Memory", "Cost"] {
        assert!(!page.contains(word), "{word}: {page}");
    }
    // Ranges have the work that was launched in them, and no host time of others' calls.
    let folder = Folder::new();
    let ranges = json(&["--filter", "range=forward"], &demo(&folder));
    let forward =
        ranges["ranges"].as_array().unwrap().iter().find(|range| range["name"] == "forward").unwrap();
    assert_eq!(forward["operations"], ranges["executed_operations"]);
    assert_eq!(forward["host_total_ns"], 0);
    let table = asked(
        "report",
        &["--report", "cuda_gpu_kern_sum", "--format", "csv", "--filter", "kernel=softmax"],
        &trace,
    );
    assert_eq!(table.expect_code(0).stdout.lines().count(), 2);
}

#[test]
fn part_without_anything_and_senseless_selections_are_explained() {
    let trace = fixture("demo");
    let ended = asked("report", &["--filter", "kernel=none_of_this_name"], &trace).expect_code(0);
    assert!(ended.stderr.contains("nothing in the trace fits"), "{}", ended.stderr);
    assert!(ended.stdout.contains("Nothing in the trace fits"), "{}", ended.stdout);
    for (arguments, part) in [
        (["--filter", "kernl=a"], "there is no key `kernl`"),
        (["--from", "-1"], ""),
        (["--from", "soon"], "a time counts from the trace's begin"),
    ] {
        let ended = asked("report", &arguments, &trace).expect_code(2);
        assert!(ended.stderr.contains(part), "{arguments:?}: {}", ended.stderr);
    }
    let ended = asked("report", &["--from", "2", "--to", "1"], &trace).expect_code(2);
    assert!(ended.stderr.contains("--from is after --to"), "{}", ended.stderr);
    // What is not known of a part is not taken for 0.
    let failed = ["--fail-on", "peak>20GiB", "--fail-on", "idle_time>1s", "--filter", "device=0"];
    let ended = asked("report", &failed, &trace).expect_code(4);
    for name in ["peak", "idle_time"] {
        assert!(ended.stderr.contains(&format!("{name} is not known")), "{}", ended.stderr);
    }
    asked("report", &["--fail-on", "kernel_time>1ms", "--filter", "kernel=softmax"], &trace).expect_code(4);
}

/// The first figure of the tree's first row is the sum of the flamegraph.
#[test]
fn trees_have_the_figures_of_the_flamegraph() {
    let trace = fixture("pytorch");
    for selection in [&[][..], &["--filter", "kernel=*gemm*"]] {
        let page = asked("report", &[&["--tree", "--min-share", "0"], selection].concat(), &trace)
            .expect_code(0)
            .stdout;
        let rows = page.lines().filter(|line| line.contains("python3 torch_train.py"));
        let top = page.lines().find(|line| line.contains("100%")).unwrap();
        let us = folded(selection, &trace);
        let shown = if us >= 1_000 { format!("{:.2} ms", us as f64 / 1e3) } else { format!("{us} µs") };
        assert!(top.trim_start().starts_with(&shown), "{shown}: {page}");
        // Every kernel is a root of the bottom-up tree with its own sum.
        let report = reported(&json(selection, &trace));
        let (_, up) = page.split_once("Bottom up").unwrap();
        for name in report.keys() {
            assert!(up.lines().any(|line| line.ends_with(&format!("  {name}"))), "{name}: {up}");
        }
        assert!(rows.count() > 1, "{page}");
        assert_eq!(page.contains("a part of the trace"), !selection.is_empty());
    }
    let few =
        asked("report", &["--tree", "--min-share", "20%", "--depth", "3"], &trace).expect_code(0).stdout;
    assert!(few.contains("not shown (--min-share)") && few.contains("not shown (--depth)"), "{few}");
    let mut narrow = gputrace();
    let narrow =
        finish(narrow.args(["report", "--tree"]).arg(&trace).env("COLUMNS", "70")).expect_code(0).stdout;
    assert!(narrow.lines().all(|line| line.chars().count() <= 70), "{narrow}");
    for arguments in [&["--tree", "--json"][..], &["--depth", "3"], &["--tree", "--min-share", "200"]] {
        asked("report", arguments, &trace).expect_code(2);
    }
}
