//! Traces recorded on real devices still give what they gave.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::process::finish;
use crate::harness::tool::{calls, count, gputrace, report};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

#[track_caller]
fn compare(actual: &str, golden: &str) {
    let path = fixture(golden);
    if env::var_os("GPUTRACE_BLESS").is_some() {
        fs::write(&path, actual).unwrap();
        return;
    }
    let expected = fs::read_to_string(&path).unwrap();
    if actual != expected {
        let kept = crate::harness::folder::base().join(golden);
        fs::write(&kept, actual).unwrap();
        panic!("{golden} differs: diff {} {}", path.display(), kept.display());
    }
}

#[test]
fn demo_on_an_h200_is_still_read() {
    let trace = fixture("demo-h200.gputrace");
    let report = report(std::slice::from_ref(&trace));
    assert_eq!(report["simulated"], false);
    assert_eq!(report["devices"][0]["name"], "NVIDIA H200");
    assert_eq!(count(&report, "launches"), 240);
    assert_eq!(count(&report, "captured_launches"), 4);
    assert_eq!(count(&report, "graph_launches"), 40);
    assert_eq!(calls(&report, "gemm_backward"), 100);
    let run = |arguments: &[&str]| finish(gputrace().args(arguments).arg(&trace)).expect_code(0).stdout;
    compare(&run(&["report", "--json"]), "demo-h200.json");
    compare(&run(&["flamegraph", "--folded"]), "demo-h200.folded");
}

/// Three steps of eager PyTorch training.
#[test]
fn pytorch_training_on_an_h200_is_still_read() {
    let trace = fixture("pytorch-h200.gputrace");
    let report = report(std::slice::from_ref(&trace));
    assert_eq!(report["simulated"], false);
    assert_eq!(count(&report, "launches"), 414);
    assert_eq!(count(&report, "device_only"), 0);
    assert_eq!(report["device_time_coverage"], 1.0);
    assert_eq!(report["kernels"].as_array().unwrap().len(), 54);
    let run = |arguments: &[&str]| finish(gputrace().args(arguments).arg(&trace)).expect_code(0).stdout;
    compare(&run(&["report", "--json"]), "pytorch-h200.json");
    compare(&run(&["flamegraph", "--folded"]), "pytorch-h200.folded");
}
