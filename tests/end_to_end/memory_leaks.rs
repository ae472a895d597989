//! What counts as leaked where a library keeps its memory to the end, and the conditions on it.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::needs::python;
use crate::harness::process::{Ended, finish};
use crate::harness::tool::{Traced, gputrace, run_command};

const MIB: u64 = 1 << 20;
const OF_TORCH: &str = "_ZN2at6native4fillEv";

fn cached(kernel: &str, mode: &str) -> Traced {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/memory_cached.py");
    run_command("python3").arg(program).arg(kernel).arg(mode).succeed()
}

fn report(traced: &Traced, condition: &str, code: i32) -> Ended {
    finish(gputrace().args(["report", "--fail-on", condition]).arg(traced.trace())).expect_code(code)
}

fn leaks(traced: &Traced) -> Vec<Value> {
    let ended = finish(gputrace().args(["memory", "--leaks", "--json"]).arg(traced.trace())).expect_code(0);
    serde_json::from_str::<Value>(&ended.stdout).unwrap()["lines"].as_array().unwrap().clone()
}

#[test]
fn what_a_caching_library_keeps_is_no_leak() {
    if !python("memory_leaks::what_a_caching_library_keeps_is_no_leak") {
        return;
    }
    let traced = cached(OF_TORCH, "cache");
    let process = &traced.report()["memory"]["processes"][0];
    let figures = ["leaked_bytes", "unfreed_bytes", "unfreed_allocations"].map(|name| &process[name]);
    assert_eq!(figures, [&json!(0), &json!(80 * MIB), &json!(4)]);
    assert_eq!(process["caching"], json!(["PyTorch"]));
    report(&traced, "leaked>0", 0);
    let failed = report(&traced, "live_at_end>0", 4);
    assert!(
        failed.stderr.contains("live_at_end is 80.0 MiB, first of all at memory_cached.py:27 segment"),
        "{}",
        failed.stderr
    );
    let ended = finish(gputrace().args(["memory", "--leaks"]).arg(traced.trace())).expect_code(0);
    assert!(
        ended.stdout.contains("80.0 MiB in 4 allocations are kept to the end by PyTorch"),
        "{}",
        ended.stdout
    );
}

#[test]
fn line_that_grows_to_the_end_is_a_leak_beside_a_cache() {
    if !python("memory_leaks::line_that_grows_to_the_end_is_a_leak_beside_a_cache") {
        return;
    }
    let traced = cached(OF_TORCH, "grows");
    let process = &traced.report()["memory"]["processes"][0];
    let figures = ["leaked_bytes", "leaked_allocations", "unfreed_bytes"].map(|name| &process[name]);
    assert_eq!(figures, [&json!(40 * MIB), &json!(20), &json!(120 * MIB)]);
    let failed = report(&traced, "leaked>0", 4);
    assert!(
        failed.stderr.contains("leaked is 40.0 MiB, first of all at memory_cached.py:31 grow"),
        "{}",
        failed.stderr
    );
    let leaks = leaks(&traced);
    assert_eq!((leaks.len(), &leaks[0]["line"]["function"]), (1, &json!("grow")));
    // The line's memory over time: nothing at first, and all of it at the end.
    let timeline: Vec<u64> = serde_json::from_value(leaks[0]["timeline"].clone()).unwrap();
    assert!(timeline.is_sorted() && timeline.last() == Some(&(40 * MIB)), "{timeline:?}");
}

#[test]
fn without_a_caching_library_all_that_is_not_freed_is_leaked() {
    if !python("memory_leaks::without_a_caching_library_all_that_is_not_freed_is_leaked") {
        return;
    }
    let traced = cached("first_kernel", "cache");
    let process = &traced.report()["memory"]["processes"][0];
    assert_eq!((&process["leaked_bytes"], &process["caching"]), (&json!(80 * MIB), &json!([])));
    report(&traced, "leaked>0", 4);
}
