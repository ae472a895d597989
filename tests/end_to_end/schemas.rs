//! Reports are as the published schemas have them (docs/reference/*.schema.json). `finish` checks the reports
//! that other tests print, too.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::schema::{check, fault};
use crate::harness::tool::{gputrace, run, run_command, run_with};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(repository(path)).unwrap()).unwrap()
}

const RECORDED: [&str; 2] = ["tests/fixtures/demo-h200.json", "tests/fixtures/pytorch-h200.json"];

#[test]
fn reports_of_recorded_and_of_made_traces_conform() {
    let made =
        ["training", "stacked", "failure"].map(|name| format!("collector/src/report/tests/{name}.json"));
    for path in RECORDED.into_iter().chain(made.iter().map(String::as_str)) {
        assert_eq!(fault(&read(path)), None, "{path}");
    }
}

#[test]
fn reports_with_parts_that_are_rare_conform() {
    let basic = || compiled("basic", Link::Driver);
    let memory = (80u64 << 20).to_string();
    let twice = format!("{0} & {0}; wait", basic().display());
    let mut part = gputrace();
    part.args(["report", "--json", "--from", "1ms"]).arg(repository("tests/fixtures/demo-h200.gputrace"));
    let part = serde_json::from_str(&finish(&mut part).expect_code(0).stdout).unwrap();
    let recorder = run_with(&["--flight-recorder", "1"], compiled("flight", Link::Driver));
    let failing =
        run("failed_calls").arg("memory").env("GPUTRACE_SIM_MEMORY_BYTES", memory).succeed().report();
    for (pointer, report) in [
        ("/part/from_ns", &part),
        ("/excerpts/0/left_out/for_room", &recorder.arg("end").arg("0.2").succeed().report()),
        ("/recording/paused_launches", &run_with(&["--start-paused"], basic()).succeed().report()),
        ("/errors/list/0/arguments/bytes", &failing),
        ("/memory/processes/0/refusals/0", &failing),
        ("/processes/1", &run_command("sh").arg("-c").arg(twice).succeed().report()),
    ] {
        assert!(report.pointer(pointer).is_some(), "{pointer}: {report:#}");
        assert_eq!(fault(report), None, "{pointer}");
    }
}

#[test]
fn comparisons_conform() {
    let traces = ["demo", "pytorch"].map(|name| repository(&format!("tests/fixtures/{name}-h200.gputrace")));
    let ended = finish(gputrace().args(["diff", "--format", "json"]).args(&traces)).expect_code(0);
    let mut compared: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(fault(&compared), None);
    compared["totals"][0]["unit"] = json!("s");
    assert!(fault(&compared).is_some_and(|fault| fault.contains("/totals/0/unit")));
}

/// What a program that reads reports could stumble over is refused, at its place.
#[test]
fn wrong_reports_are_refused() {
    let good = read(RECORDED[0]);
    assert_eq!(fault(&good), None);
    for (place, value) in [
        ("/wall_ns", json!("1")),
        ("/wall_ns", json!(-1)),
        ("/wall_ns", json!(1.5)),
        ("/version", json!(2)),
        ("/device_times", json!("some")),
        ("/device_time_coverage", Value::Null),
        ("/kernels/0/total_ns", json!("long")),
        ("/kernels/0/configs/0/grid", json!([1, 1])),
        ("/findings", Value::Null),
        ("/dropped", json!([])),
    ] {
        let mut wrong = good.clone();
        *wrong.pointer_mut(place).unwrap_or_else(|| panic!("{place} is not there")) = value;
        let fault =
            fault(&wrong).unwrap_or_else(|| panic!("{place} may be {}", wrong.pointer(place).unwrap()));
        assert!(fault.contains(place), "{place}: {fault}");
    }
    for (place, field) in
        [("", "notices"), ("", "launches"), ("/kernels/0", "p99_ns"), ("/devices/0", "uuid")]
    {
        let mut wrong = good.clone();
        wrong.pointer_mut(place).unwrap().as_object_mut().unwrap().remove(field).unwrap();
        let fault = fault(&wrong).unwrap_or_else(|| panic!("{place} may lack {field}"));
        assert!(fault.contains(field), "{field}: {fault}");
    }
    // New fields may come.
    let mut newer = good.clone();
    newer["kernels"][0]["new"] = json!({ "field": 1 });
    assert_eq!(fault(&newer), None);
}

#[test]
#[should_panic(expected = "/sessions")]
fn printed_report_that_does_not_conform_fails_its_test() {
    let mut wrong = read(RECORDED[0]);
    wrong["sessions"] = json!("one");
    check(&format!("{wrong:#}\n"));
}
