//! `gputrace report --report NAME --format FORMAT`: single tables of a recorded trace.

use std::path::Path;

use gputrace_collector::report::named;
use serde_json::Value;

use crate::harness::process::{Ended, finish};
use crate::harness::tool::{Traced, gputrace, run, run_command};
use crate::idle_flame::{line, program};
use crate::python_stacks::interpreters;

fn report(arguments: &[&str]) -> Ended {
    report_on(arguments, 160)
}

/// On a page of that many columns.
fn report_on(arguments: &[&str], columns: usize) -> Ended {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pytorch-h200.gputrace");
    finish(gputrace().env("COLUMNS", columns.to_string()).arg("report").args(arguments).arg(trace))
}

fn json(arguments: &[&str]) -> Value {
    let ended = report(arguments).expect_code(0);
    serde_json::from_str(&ended.stdout).expect("it is JSON")
}

#[test]
fn table_of_kernels_has_nsys_s_headings_and_the_report_s_figures() {
    let whole = json(&["--json"]);
    let ended = report(&["--report", "cuda_gpu_kern_sum", "--format", "csv"]).expect_code(0);
    let mut lines = ended.stdout.lines();
    assert_eq!(
        lines.next(),
        Some("Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name")
    );
    let kernels = whole["kernels"].as_array().unwrap();
    assert_eq!(lines.clone().count(), kernels.len());
    for (line, kernel) in lines.zip(kernels) {
        let fields: Vec<&str> = line.splitn(9, ',').collect();
        assert_eq!(fields[1], kernel["total_ns"].to_string(), "{line}");
        assert_eq!(fields[2], kernel["calls"].to_string(), "{line}");
        let name = fields[8].trim_matches('"').replace("\"\"", "\"");
        assert_eq!(name, kernel["full_name"].as_str().unwrap());
    }
}

#[test]
fn each_table_has_the_same_rows_in_each_format() {
    for name in named::names() {
        let rows = json(&["--report", name, "--format", "json"])[name].as_array().unwrap().len();
        for (format, around) in [("csv", 1), ("markdown", 4)] {
            let text = report(&["--report", name, "--format", format]).stdout;
            assert_eq!(text.lines().count(), rows + around, "{name} {format}: {text}");
        }
        // Wide enough for all columns beside each other.
        let text = report_on(&["--report", name], 600).stdout;
        assert_eq!(text.lines().count(), 1 + rows.max(1) + usize::from(rows > 0), "{name}: {text}");
    }
}

#[test]
fn copies_and_fills_add_up_to_the_report_s() {
    let whole = json(&["--json"]);
    let sum = |rows: &Value, key: &str| -> u64 {
        rows.as_array().unwrap().iter().filter_map(|row| row[key].as_u64()).sum()
    };
    let table = json(&["--report", "cuda_gpu_mem_time_sum", "--format", "json"]);
    let rows = &table["cuda_gpu_mem_time_sum"];
    for (heading, key) in [("Total Time (ns)", "total_ns"), ("Count", "calls")] {
        let expected = sum(&whole["transfers"], key) + whole["memsets"][key].as_u64().unwrap_or(0);
        assert!(expected > 0);
        assert_eq!(sum(rows, heading), expected, "{heading}");
    }
}

#[test]
fn markdown_without_a_table_prints_the_usual_ones() {
    let ended = report(&["--format", "markdown"]);
    let titles: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("**")).collect();
    assert_eq!(titles.len(), named::DEFAULT.len(), "{}", ended.stdout);
}

#[test]
fn unknown_table_is_refused_with_the_names_of_all() {
    let ended = report(&["--report", "lines,cuda_gpu_kern_summ", "--format", "csv"]).expect_code(2);
    assert_eq!(ended.stdout, "");
    assert!(ended.stderr.contains("\"cuda_gpu_kern_summ\""), "{}", ended.stderr);
    for name in named::names() {
        assert!(ended.stderr.contains(name), "{name}: {}", ended.stderr);
    }
    report(&["--json", "--format", "csv"]).expect_code(2);
}

#[test]
fn tables_fit_a_narrow_page() {
    for name in named::names() {
        let text = report_on(&["--report", name], 60).stdout;
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{name}: {text}");
    }
}

/// A function of the program with planted faults, traced; `None` without a Python.
fn planted(function: &str) -> Option<Traced> {
    let (_, python) = interpreters("report_tables").pop()?;
    Some(run_command(&python).arg(program()).arg(function).succeed())
}

fn rows(traced: &Traced, name: &str) -> Vec<Value> {
    let mut command = gputrace();
    let command = command.args(["report", "--report", name, "--format", "json"]).arg(traced.trace());
    let tables: Value = serde_json::from_str(&finish(command).expect_code(0).stdout).expect("it is JSON");
    tables[name].as_array().unwrap().clone()
}

#[test]
fn launches_are_joined_with_the_line_that_launched() {
    let Some(traced) = planted("sync_in_loop") else { return };
    let at = format!("planted.py:{} sync_in_loop", line("sync_in_loop", "launch"));
    let lines = rows(&traced, "line_exec_sum");
    assert_eq!((lines.len(), lines[0]["Line"].as_str()), (1, Some(at.as_str())), "{lines:?}");
    let kernels = rows(&traced, "cuda_kern_exec_sum");
    // The program has one kernel and one line that launches it: both tables have the same figures.
    for (heading, figure) in kernels[0].as_object().unwrap().iter().filter(|(heading, _)| *heading != "Name")
    {
        assert_eq!(lines[0][heading], *figure, "{heading}: {lines:?} {kernels:?}");
    }
    assert_eq!((&lines[0]["Count"], &lines[0]["KAvg (ns)"]), (&Value::from(300), &Value::from(200_000.0)));
    let report = traced.report();
    let is_loop = |line: &&Value| line["launches"]["calls"] == 300;
    let of_lines: Vec<&Value> = report["lines"].as_array().unwrap().iter().filter(is_loop).collect();
    assert_eq!(of_lines.len(), 1, "{:#}", report["lines"]);
    assert_eq!(of_lines[0]["launches"], report["kernels"][0]["launches"]);
}

#[test]
fn copies_between_devices_are_by_pair() {
    let traced = run("peer_copies").env("GPUTRACE_SIM_DEVICES", "2").succeed();
    let report = traced.report();
    let transfers = report["transfers"].as_array().unwrap();
    let of = |direction: &str| transfers.iter().find(|of| of["direction"] == direction).unwrap();
    assert_eq!(
        (&of("gpu_to_gpu")["calls"], &of("gpu_to_gpu")["by_devices"]),
        (&Value::from(1), &Value::Null)
    );
    let peers = of("peer_to_peer");
    let pairs = peers["by_devices"].as_array().unwrap();
    let pair = |pair: &Value| {
        let figures = ["source_ordinal", "target_ordinal", "calls", "timed_calls", "bytes"];
        figures.map(|name| pair[name].as_u64().unwrap())
    };
    assert_eq!(pairs.iter().map(pair).collect::<Vec<_>>(), [[0, 1, 3, 3, 3 << 20], [1, 0, 2, 2, 1 << 20]]);
    assert_eq!(pairs[0]["source_uuid"], pairs[1]["target_uuid"]);
    assert!(pairs[0]["source_uuid"].is_string() && pairs[0]["source_uuid"] != pairs[0]["target_uuid"]);
    let sum: u64 = pairs.iter().map(|pair| pair["total_ns"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), peers["total_ns"].as_u64());

    let table = rows(&traced, "peer_copies");
    let labels: Vec<_> = table.iter().map(|row| row["Devices"].as_str().unwrap()).collect();
    assert_eq!(labels, ["GPU 0 to GPU 1", "GPU 1 to GPU 0"]);
    for (row, pair) in table.iter().zip(pairs) {
        assert_eq!((&row["Total Time (ns)"], &row["Count"]), (&pair["total_ns"], &pair["calls"]));
    }
    assert!(traced.summary_words().contains(" GPU 0 to GPU 1 3 "), "{}", traced.summary_words());
    // A program without such copies has no such rows.
    let without = run("basic").succeed();
    assert!(!without.summary_words().contains(" to GPU "), "{}", without.summary_words());
    assert!(rows(&without, "peer_copies").is_empty());
}

#[test]
fn allocations_are_joined_with_the_line_that_allocated() {
    let Some(traced) = planted("allocator_churn") else { return };
    let at = format!("planted.py:{} allocator_churn", line("allocator_churn", "allocate"));
    let table = rows(&traced, "line_alloc_sum");
    let churn = table.iter().find(|row| row["Line"] == at.as_str()).unwrap_or_else(|| panic!("{table:?}"));
    // 40 times 200 allocations of 8 MiB; the 200 are live together, and all are freed.
    let mib = |count: f64| Value::from((count * 1.048_576 * 10.0).round() / 10.0);
    let figures = ["Allocations", "Frees", "Allocated (MB)", "Live At Most (MB)", "Kind"];
    let expected = [8_000.into(), 8_000.into(), mib(64_000.0), mib(1_600.0), "device".into()];
    assert_eq!(figures.map(|heading| churn[heading].clone()), expected, "{churn}");
    let report = traced.report();
    let is_alloc = |call: &&Value| call["class"] == "alloc" || call["class"] == "free";
    let classes = report["call_classes"].as_array().unwrap().iter().filter(is_alloc);
    let in_calls: u64 = classes.map(|call| call["total_ns"].as_u64().unwrap()).sum();
    let in_table: u64 = table.iter().map(|row| row["Total Time (ns)"].as_u64().unwrap()).sum();
    assert_eq!(in_table, in_calls, "{table:?}");
}
