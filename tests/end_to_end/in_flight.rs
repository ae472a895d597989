//! A kernel faults, or the program is killed: the report says which call failed and what the device was at.

use serde_json::{Value, json};

use crate::harness::tool::{Traced, count, run};

/// By stream, what is in flight, newest first.
fn in_flight(report: &Value) -> Vec<Vec<String>> {
    let streams = report["in_flight"].as_array().unwrap();
    let names = |stream: &Value| {
        let calls = stream["newest_first"].as_array().unwrap().iter();
        calls.map(|call| call["name"].as_str().unwrap().to_owned()).collect()
    };
    streams.iter().map(names).collect()
}

/// The summary's words: its lines break where a process's number is long.
fn summary(traced: &Traced) -> String {
    traced.read("summary.txt").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The failing call, and that whoever reads the summary sees it.
#[track_caller]
fn failed(traced: &Traced) -> Value {
    let report = traced.report();
    let failure = &report["failures"][0];
    assert_eq!(report["failures"].as_array().unwrap().len(), 1, "{report:#}");
    assert_eq!(failure["call"], "cuStreamSynchronize");
    assert_eq!((&failure["error"], &failure["code"]), (&json!("CUDA_ERROR_ILLEGAL_ADDRESS"), &json!(700)));
    assert_eq!((&failure["tid"], &failure["pid"]), (&failure["pid"], &report["in_flight"][0]["pid"]));
    report
}

#[test]
fn illegal_access_is_reported_with_what_was_in_flight() {
    for how in ["fault", "leave"] {
        let traced = run("faulting").arg(how).go().expect_code(3);
        let report = failed(&traced);
        assert_eq!(
            in_flight(&report),
            [vec!["lengthy"], vec!["steady", "steady", "steady", "bad_store"]],
            "{how}: {report:#}"
        );
        assert!(report["in_flight"].as_array().unwrap().iter().all(|stream| stream["known_by"] == "records"));
        // Refused launches are counted as such and are in flight nowhere.
        assert_eq!((count(&report, "launches"), count(&report, "failed_calls")), (10, 1), "{report:#}");
        let words = summary(&traced);
        for said in [
            "cuStreamSynchronize returned CUDA_ERROR_ILLEGAL_ADDRESS after",
            "In flight 5 operations of process",
            ": lengthy stream",
            ": steady ×3, bad_store",
        ] {
            assert!(words.contains(said), "{said:?}: {words}");
        }
    }
}

#[test]
fn waits_report_what_was_in_flight_without_device_times() {
    let traced = run("faulting").env("GPUTRACE_DEVICE_TIMES", "off").go().expect_code(3);
    let report = failed(&traced);
    let expected = [vec!["lengthy"], vec!["steady", "steady", "steady", "bad_store", "spin"]];
    assert_eq!(in_flight(&report), expected, "{report:#}");
    assert_eq!(report["in_flight"][0]["known_by"], "waits");
    assert!(summary(&traced).contains(", as far as its waits tell, newest first"));
}

#[test]
fn killed_program_reports_what_was_in_flight() {
    let traced = run("faulting").arg("kill").go();
    assert_eq!(traced.ended.signal(), Some(libc::SIGKILL));
    let report = traced.report();
    assert_eq!(in_flight(&report), [["steady", "lengthy"]], "{report:#}");
    assert_eq!(report["in_flight"][0]["vanished"], true);
    assert!(report["failures"].as_array().unwrap().is_empty());
    assert!(summary(&traced).contains(", which vanished,"));
}

/// Records of the last moments are missing, and the kernels had ended all the same: each but the last was
/// followed by much more time than any of them took.
#[test]
fn short_kernels_on_an_idle_device_are_not_reported_as_in_flight() {
    let ended = || {
        let traced = run("faulting").arg("idle").go();
        assert_eq!(traced.ended.signal(), Some(libc::SIGINT));
        traced.report()
    };
    // On a loaded machine the signal may come so late that no record is missing, which shows nothing.
    let is_missing = |report: &Value| count(report, "untimed_operations") > 1;
    let report =
        (0..10).map(|_| ended()).find(is_missing).expect("every kernel has its times, ten times over");
    assert_eq!(report["processes"][0]["end"], "vanished", "{report:#}");
    let operations: u64 =
        report["in_flight"].as_array().unwrap().iter().map(|of| of["operations"].as_u64().unwrap()).sum();
    assert!(operations <= 1, "{report:#}");
    assert_eq!(count(&report, "launches"), 204);
}

#[test]
fn program_that_ends_well_has_neither() {
    let report = run("basic").succeed().report();
    assert_eq!((&report["failures"], &report["in_flight"]), (&json!([]), &json!([])));
}
