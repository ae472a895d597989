//! Memory by line: peak, what was never freed, temporary allocations, and who held it when there was not
//! enough.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::needs::python;
use crate::harness::process::finish;
use crate::harness::tool::{Traced, bare_command, gputrace, run_command};

const MIB: u64 = 1 << 20;

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/programs/memory_use.py")
}

/// What the program says of itself.
fn said(traced: &Traced) -> Value {
    serde_json::from_str(traced.ended.stdout.trim()).unwrap()
}

/// What `gputrace memory` prints.
fn memory(traced: &Traced, options: &[&str]) -> String {
    finish(gputrace().arg("memory").args(options).arg(traced.trace())).expect_code(0).stdout
}

fn lines(traced: &Traced, options: &[&str]) -> Vec<Value> {
    let document: Value = serde_json::from_str(&memory(traced, &[options, &["--json"]].concat())).unwrap();
    document["lines"].as_array().unwrap().clone()
}

#[test]
fn leak_in_a_loop_is_the_first_line_and_the_peak_is_exact() {
    if !python("memory::leak_in_a_loop_is_the_first_line_and_the_peak_is_exact") {
        return;
    }
    let traced = run_command("python3").arg(program()).arg("leak").succeed();
    let (said, report) = (said(&traced), traced.report());
    let process = &report["memory"]["processes"][0];
    let figures = ["peak_bytes", "end_bytes", "leaked_bytes", "end_allocations"].map(|name| &process[name]);
    assert_eq!(figures, [&json!(576 * MIB), &json!(64 * MIB), &json!(64 * MIB), &json!(64)]);
    let leaks = lines(&traced, &["--leaks"]);
    let of = |line: &Value| (line["line"]["line"].clone(), line["end_allocations"].clone());
    assert_eq!(leaks.iter().map(of).collect::<Vec<_>>(), [(said["lines"]["leak"].clone(), json!(64))]);
    // At the peak the other line holds more.
    let held = lines(&traced, &["--at", "peak"]);
    assert_eq!(held[0]["peak_bytes"], json!(512 * MIB));
    assert!(
        traced.summary_words().contains("leak: 64.0 MiB in 64 allocations"),
        "{}",
        traced.summary_words()
    );
    // A flamegraph of bytes, as text, as a tree and drawn.
    assert!(memory(&traced, &["--at", "end", "--tree"]).contains("64.0 MiB   100%"));
    let drawn = memory(&traced, &["--flame"]);
    assert!(drawn.contains("576 MiB of device memory at the peak") && drawn.ends_with("</svg>\n"), "{drawn}");
    let folded = traced.output.join("memory.folded");
    finish(gputrace().args(["memory", "--at", "end", "-o"]).arg(&folded).arg(traced.trace())).expect_code(0);
    let folded = std::fs::read_to_string(folded).unwrap();
    assert!(folded.ends_with(&format!(";cuMemAlloc;device {}\n", 64 * MIB)), "{folded}");
    // Before the first allocation nothing was held, and long after the last what is left.
    assert!(memory(&traced, &["--at", "1ns"]).contains("No memory was held then."));
    assert_eq!(lines(&traced, &["--at", "1h"])[0]["at_bytes"], json!(64 * MIB));
}

#[test]
fn allocations_that_are_freed_at_once_are_temporary() {
    if !python("memory::allocations_that_are_freed_at_once_are_temporary") {
        return;
    }
    let traced = run_command("python3").arg(program()).arg("churn").succeed();
    let churn = lines(&traced, &["--temporary"]);
    assert_eq!(
        (&churn[0]["temporary"], &churn[0]["line"]["line"]),
        (&json!(500), &said(&traced)["lines"]["churn"])
    );
    assert_eq!(traced.report()["memory"]["processes"][0]["end_bytes"], 0);
    assert!(memory(&traced, &["--leaks"]).contains("All memory was freed."));
}

#[test]
fn killed_program_leaves_what_it_held() {
    if !python("memory::killed_program_leaves_what_it_held") {
        return;
    }
    let traced = run_command("python3").arg(program()).arg("killed").go();
    assert_eq!(traced.ended.signal(), Some(9));
    let process = &traced.report()["memory"]["processes"][0];
    assert_eq!((&process["end_bytes"], &process["end_allocations"]), (&json!(48 * MIB), &json!(3)));
    assert_eq!(lines(&traced, &["--leaks"])[0]["line"]["function"], "killed");
}

#[test]
fn lack_of_memory_is_reported_at_once_with_who_holds_it() {
    if !python("memory::lack_of_memory_is_reported_at_once_with_who_holds_it") {
        return;
    }
    let size = (80 * MIB).to_string();
    let traced = run_command("python3")
        .arg(program())
        .arg("wanting")
        .arg("asking")
        .env("GPUTRACE_SIM_MEMORY_BYTES", size)
        .succeed();
    let messages: Vec<&str> =
        traced.ended.stderr.lines().filter(|line| line.starts_with("gputrace: out of memory")).collect();
    // What was given at the second try is not reported, and the two for good are reported once.
    let [line] = messages[..] else { panic!("{}", traced.ended.stderr) };
    assert!(line.contains("16.0 TiB (device) asked for at wanting.<locals>.ask memory_use.py:"), "{line}");
    assert!(line.contains("holds 16.0 MiB in 1 allocation of the device's 80.0 MiB"), "{line}");
    assert!(
        traced.ended.stderr.contains("16.0 MiB   100% in      1  allocate memory_use.py:"),
        "{}",
        traced.ended.stderr
    );
    let free = "\n  the device has 64.0 MiB free; 0 B are not in the program's allocations: ";
    assert!(traced.ended.stderr.contains(free), "{}", traced.ended.stderr);
    let process = &traced.report()["memory"]["processes"][0];
    let given: Vec<_> = process["refusals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|refusal| refusal["given_later"].clone())
        .collect();
    assert_eq!((given, &process["refused"]), (vec![json!(true), json!(false), json!(false)], &json!(3)));
}

#[test]
fn conditions_on_memory_decide_the_exit_code() {
    if !python("memory::conditions_on_memory_decide_the_exit_code") {
        return;
    }
    let traced = run_command("python3").arg(program()).arg("leak").succeed();
    let report = |conditions: &[&str], code| {
        let options = conditions.iter().flat_map(|condition| ["--fail-on", condition]);
        finish(gputrace().arg("report").args(options).arg(traced.trace())).expect_code(code)
    };
    let failed = report(&["peak>1GiB", "leaked>0"], 4);
    assert!(
        failed.stderr.contains("--fail-on 'leaked>0': leaked is 64.0 MiB, first of all at memory_use.py:")
    );
    assert!(!failed.stderr.contains("peak>1GiB") && failed.stdout.contains("Memory"), "{}", failed.stderr);
    report(&["peak>576MiB", "leaked_allocations>64"], 0);
    report(&["peak >= 576 MiB"], 4);
    for wrong in ["peak>20", "peak>2ms", "leeked>0", "peak", "peak[x]>1B"] {
        report(&[wrong], 2);
    }
}

/// The report's memory of the one process, beside what the program says of itself.
fn process_of(mode: &str) -> (Value, Value) {
    let traced = run_command("python3").arg(program()).arg(mode).succeed();
    let report = traced.report();
    let process = report["memory"]["processes"][0].clone();
    let unmatched = process["unmatched_frees"].as_object().unwrap();
    assert!(unmatched.values().all(|count| *count == json!(0)), "{unmatched:?}");
    (said(&traced), process)
}

#[test]
fn pools_have_what_the_driver_counts() {
    if !python("memory::pools_have_what_the_driver_counts") {
        return;
    }
    let (said, process) = process_of("pools");
    let [own, made] = &process["pools"].as_array().unwrap()[..] else { panic!("{}", process["pools"]) };
    for (pool, name) in [(own, "own"), (made, "made")] {
        assert_eq!(
            (&pool["peak_bytes"], &pool["end_bytes"]),
            (&said["used"][name], &said["end"][name]),
            "{name}"
        );
    }
    assert_eq!((&said["end"]["own"], &said["end"]["made"]), (&json!(8 * MIB), &json!(9 * MIB)));
    let of_own =
        ["is_default", "keeps_bytes", "limit_bytes", "reserved_bytes", "is_destroyed"].map(|name| &own[name]);
    assert_eq!(of_own, [&json!(true), &json!(1 << 30), &Value::Null, &Value::Null, &json!(false)]);
    let of_made =
        ["is_default", "limit_bytes", "reserved_bytes", "trims", "is_destroyed"].map(|name| &made[name]);
    assert_eq!(of_made, [&json!(false), &json!(256 * MIB), &said["reserved"], &json!(1), &json!(true)]);
    assert!(own["handle"].as_str().unwrap().starts_with("0x") && own["handle"] != made["handle"]);
}

#[test]
fn pools_of_two_devices_are_apart() {
    if !python("memory::pools_of_two_devices_are_apart") {
        return;
    }
    let traced =
        run_command("python3").arg(program()).arg("devices").env("GPUTRACE_SIM_DEVICES", "2").succeed();
    let report = traced.report();
    let pools = report["memory"]["processes"][0]["pools"].as_array().unwrap();
    let of = |pool: &Value| ["device", "is_default", "end_bytes"].map(|name| pool[name].clone());
    let ours: Vec<_> = pools.iter().map(of).collect();
    let used = said(&traced)["used"].clone();
    let expected = [
        [json!(0), json!(true), used[0].clone()],
        [json!(1), json!(true), used[1].clone()],
        [json!(1), json!(false), used[2].clone()],
    ];
    assert_eq!(ours, expected);
    assert_eq!(used, json!([5 * MIB, 2 * MIB, 8 * MIB]));
}

#[test]
fn arrays_and_mipmaps_count_by_their_elements() {
    if !python("memory::arrays_and_mipmaps_count_by_their_elements") {
        return;
    }
    let (said, process) = process_of("arrays");
    let kind = &process["kinds"][0];
    assert_eq!(
        (&kind["kind"], &kind["allocations"], &kind["frees"]),
        (&json!("array"), &json!(3), &json!(1))
    );
    assert_eq!((&process["peak_bytes"], &process["end_bytes"]), (&said["peak"], &said["end"]));
    assert_eq!(said["taken"], said["peak"]);
    // Before anything was allocated and after: the second time more was in use, and all of it is accounted.
    let used = &process["device_use"];
    assert_eq!((&used["accounted_bytes"], &used["not_accounted_bytes"]), (&said["peak"], &json!(0)));
}

#[test]
fn mapped_memory_is_live_until_it_is_unmapped() {
    if !python("memory::mapped_memory_is_live_until_it_is_unmapped") {
        return;
    }
    let (said, process) = process_of("mapped");
    assert_eq!(said["taken"], said["held"]);
    assert_eq!((&process["peak_bytes"], &process["end_bytes"]), (&said["peak"], &said["end"]));
    let kinds = process["kinds"].as_array().unwrap().iter();
    let ends: Vec<_> = kinds.map(|kind| (&kind["kind"], &kind["end_bytes"], &kind["frees"])).collect();
    let expected =
        [(&json!("pinned"), &said["on_host"], &json!(1)), (&json!("virtual"), &said["end"], &json!(4))];
    assert_eq!(ends, expected);
}

#[test]
fn shared_memory_counts_in_the_process_that_allocated_it() {
    if !python("memory::shared_memory_counts_in_the_process_that_allocated_it") {
        return;
    }
    let traced = run_command("python3").arg(program()).arg("shared").succeed();
    let report = traced.report();
    let processes = report["memory"]["processes"].as_array().unwrap();
    let mut ends: Vec<_> = processes.iter().map(|process| process["end_bytes"].as_u64().unwrap()).collect();
    ends.sort_unstable();
    assert_eq!(ends, [MIB, 8 * MIB]);
    let child = processes.iter().find(|process| process["end_bytes"] == json!(MIB)).unwrap();
    let opened = child["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "imported").unwrap();
    let counts = ["allocations", "frees", "end_allocations"].map(|name| opened[name].as_u64().unwrap());
    assert_eq!(counts, [4, 3, 1]);
    assert!(processes.iter().all(|process| process["unmatched_frees"]["unknown"] == json!(0)));
}

#[test]
fn memory_of_graphs_is_counted_beside_the_rest() {
    if !python("memory::memory_of_graphs_is_counted_beside_the_rest") {
        return;
    }
    let (said, process) = process_of("graph");
    assert_eq!((&process["graph_allocations"], &process["graph_bytes"]), (&json!(2), &said["in_graphs"]));
    assert_eq!((&process["peak_bytes"], &process["end_bytes"]), (&said["end"], &said["end"]));
}

/// The messages on want of memory in what a program wrote while it was traced by `LD_PRELOAD` alone.
fn bare_messages(arguments: &[&str]) -> (String, usize) {
    let size = (80 * MIB).to_string();
    let mut run = bare_command("python3").arg(program()).env("GPUTRACE_SIM_MEMORY_BYTES", size);
    for argument in arguments {
        run = run.arg(argument);
    }
    let stderr = run.succeed().ended.stderr;
    let count = stderr.matches("gputrace: out of memory: 16.0 TiB (device) asked for at wanting").count();
    (stderr, count)
}

#[test]
fn lack_of_memory_is_written_by_the_process_itself_in_auto_collect() {
    if !python("memory::lack_of_memory_is_written_by_the_process_itself_in_auto_collect") {
        return;
    }
    let (stderr, count) = bare_messages(&["wanting"]);
    assert_eq!(count, 1, "{stderr}");
    let (message, later) = (stderr.find("out of memory").unwrap(), stderr.find("two seconds later").unwrap());
    assert!(
        message < later && stderr.contains("16.0 MiB   100% in      1  allocate memory_use.py:"),
        "{stderr}"
    );
    // A program that ends at once has the message before its summary.
    let (stderr, count) = bare_messages(&["wanting", "quick"]);
    assert_eq!(count, 1, "{stderr}");
}
