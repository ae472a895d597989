//! GPU time by PyTorch module, in the report, its tables, flamegraphs and comparisons.
//!
//! The program has a stand-in for PyTorch's file that calls modules; the GPU tests have PyTorch's own.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::tool::{Traced, gputrace, run_command};
use crate::python_stacks::interpreters;

/// Qualified names are there from this version on.
const MINOR_MIN: u32 = 11;

fn traced(minors: impl Fn(u32) -> bool) -> Option<Traced> {
    let pythons = interpreters("torch_modules");
    let (_, python) = pythons.into_iter().rfind(|(minor, _)| minors(*minor))?;
    let folder = Folder::new();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/torch_modules.py");
    Some(run_command(python).arg(program).arg(folder.path()).succeed())
}

fn new() -> Option<Traced> {
    traced(|minor| minor >= MINOR_MIN)
}

/// By class: operations, ns, and the same of the module itself. A kernel takes 10 µs.
fn modules(report: &Value) -> Vec<(&str, [u64; 4])> {
    let list = report["modules"]["list"].as_array().unwrap_or_else(|| panic!("{report:#}"));
    let figures = |module: &Value| {
        ["calls", "total_ns", "self_calls", "self_ns"].map(|key| module[key].as_u64().unwrap_or(0))
    };
    list.iter().map(|module| (module["class"].as_str().unwrap(), figures(module))).collect()
}

#[test]
fn modules_have_the_time_of_what_they_launched() {
    let Some(traced) = new() else { return };
    let report = traced.report();
    // Two steps, each of a head and three blocks inside of each other, each with an attention of two linear
    // maps.
    let us = |calls: u64, itself: u64| [calls, calls * 10_000, itself, itself * 10_000];
    let expected = [
        ("Model", us(26, 0)),
        ("Block", us(24, 6)),
        ("Attention", us(18, 6)),
        ("Linear", us(12, 12)),
        ("Head", us(2, 2)),
    ];
    assert_eq!(modules(&report), expected, "{:#}", report["modules"]);
    let all = &report["modules"];
    assert_eq!(all["outside"], json!({ "calls": 2, "total_ns": 20_000, "share": 2.0 / 28.0 }));
    assert_eq!(all["backward"], json!({ "calls": 0, "total_ns": null, "share": null }));
    assert!(all["list"][0]["host_calls"].as_u64() >= Some(26), "{all:#}");
    let summary = traced.read("summary.txt");
    for row in ["Modules (PyTorch)", "Attention  ", "(no module)"] {
        assert!(summary.contains(row), "{row}: {summary}");
    }
    let mut table = gputrace();
    table.args(["report", "--report", "torch_modules", "--format", "csv"]).arg(traced.trace());
    let table = finish(&mut table).expect_code(0).stdout;
    assert!(table.contains(",180000,18,0,0,60000,6,"), "{table}");
}

#[test]
fn flamegraph_by_module_has_a_frame_for_each() {
    let Some(traced) = new() else { return };
    let folded = |group_by: &str| {
        let mut command = gputrace();
        command.args(["flamegraph", "--folded", "--group-by", group_by]).arg(traced.trace());
        finish(&mut command).expect_code(0).stdout
    };
    let by_module = folded("module");
    let inner = "Model;Block;Block;Block;Attention;Linear;Linear.forward torch_modules.py:";
    let of_inner: Vec<&str> = by_module.lines().filter(|line| line.contains("Linear.forward")).collect();
    assert_eq!(of_inner.len(), 3, "{by_module}");
    assert!(of_inner.iter().any(|line| line.starts_with(inner)), "{by_module}");
    assert!(by_module.lines().any(|line| line.starts_with("(no module);<module> ")), "{by_module}");
    let sum = |folded: &str| -> u64 {
        folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    assert_eq!(sum(&by_module), sum(&folded("none")));
    assert!(
        folded("process,module").lines().all(|line| line.starts_with("python3")),
        "{}",
        folded("process,module")
    );
    let mut tree = gputrace();
    tree.args(["report", "--tree", "--group-by", "module"]).arg(traced.trace());
    let tree = finish(&mut tree).expect_code(0).stdout;
    assert!(tree.contains("Attention"), "{tree}");
}

#[test]
fn comparison_has_the_modules_that_changed() {
    let Some(traced) = new() else { return };
    let mut diff = gputrace();
    diff.args(["diff", "--format", "json"]).arg(traced.trace()).arg(traced.trace());
    let diff: Value = serde_json::from_str(&finish(&mut diff).expect_code(0).stdout).unwrap();
    let names: Vec<&str> =
        diff["modules"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"Attention torch_modules.py"), "{names:?}");
    assert_eq!(diff["modules"][0]["time"]["difference"], 0.0);
}

#[test]
fn functions_without_qualified_names_belong_to_no_module() {
    let Some(traced) = traced(|minor| minor < MINOR_MIN) else { return };
    let report = traced.report();
    assert_eq!(report["launches"], 28);
    assert_eq!(report.get("modules"), None);
}
