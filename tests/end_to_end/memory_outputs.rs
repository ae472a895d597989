//! Memory beside another trace, as a flamegraph of what is leaked, and as a snapshot for PyTorch's readers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::harness::needs::{python, skipped};
use crate::harness::process::finish;
use crate::harness::tool::{Traced, gputrace, run_command};
use crate::harness::{folder, process::Ended};

const MIB: u64 = 1 << 20;
/// A reader of PyTorch's snapshots that does without PyTorch.
const READER: &str = "pt-snap-cli==0.4.1";

fn cached(mode: &str) -> Traced {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/memory_cached.py");
    run_command("python3").arg(program).arg("_ZN2at6native4fillEv").arg(mode).succeed()
}

fn memory(traced: &Traced, options: &[&str]) -> String {
    finish(gputrace().arg("memory").args(options).arg(traced.trace())).expect_code(0).stdout
}

fn snapshot(traced: &Traced) -> (PathBuf, Ended) {
    let path = traced.output.join("snapshot.pickle");
    let export = ["export", "--format", "torch-snapshot", "-o"];
    let ended = finish(gputrace().args(export).arg(&path).arg(traced.trace())).expect_code(0);
    (path, ended)
}

#[test]
fn memory_of_two_traces_is_compared_by_line() {
    if !python("memory_outputs::memory_of_two_traces_is_compared_by_line") {
        return;
    }
    let (before, after) = (cached("cache"), cached("grows"));
    let before = before.trace().display().to_string();
    let diff: Value = serde_json::from_str(&memory(&after, &["--json", "--diff", &before])).unwrap();
    assert_eq!((&diff["schema"], &diff["version"]), (&json!("gputrace-memory-diff"), &json!(1)));
    let first = &diff["lines"][0];
    assert_eq!((&first["line"]["function"], &first["before"]), (&json!("grow"), &Value::Null));
    assert_eq!(first["after"]["leaked_bytes"], json!(40 * MIB));
    assert_eq!(
        (&diff["before"]["leaked_bytes"], &diff["after"]["leaked_bytes"]),
        (&json!(0), &json!(40 * MIB))
    );
    let text = memory(&after, &["--diff", &before]);
    assert!(text.contains("leaked: 0 B before, 40.0 MiB after (+40.0 MiB)"), "{text}");
    assert!(!text.contains("memory_cached.py:27"), "it did not change: {text}");
    assert!(
        memory(&after, &["--diff", &after.trace().display().to_string()])
            .contains("No line's memory changed")
    );
}

#[test]
fn flamegraphs_are_of_what_is_leaked_and_of_all_that_was_allocated() {
    if !python("memory_outputs::flamegraphs_are_of_what_is_leaked_and_of_all_that_was_allocated") {
        return;
    }
    let traced = cached("grows");
    let leaked = memory(&traced, &["--leaks", "--tree"]);
    assert!(leaked.contains("40.0 MiB of leaked memory") && !leaked.contains("segment"), "{leaked}");
    let all = memory(&traced, &["--churn", "--flame"]);
    assert!(all.contains("120 MiB of memory allocated in all") && all.ends_with("</svg>\n"), "{all}");
    // The table draws the process's memory over time and that of its lines.
    let table = memory(&traced, &[]);
    let drawn = table.lines().filter(|line| line.contains('█')).count();
    assert_eq!(drawn, 3, "{table}");
    assert!(
        table.contains("Sizes, from a power of two to the next: 20 of 2.00 MiB, 4 of 16.0 MiB"),
        "{table}"
    );
}

#[test]
fn snapshot_has_the_lines_that_allocated() {
    if !python("memory_outputs::snapshot_has_the_lines_that_allocated") {
        return;
    }
    let traced = cached("grows");
    let (path, ended) = snapshot(&traced);
    assert!(ended.stderr.contains("24 events in "), "{}", ended.stderr);
    let program = "import json, pickle, sys; print(json.dumps(pickle.load(open(sys.argv[1], 'rb'))))";
    let read = finish(Command::new("python3").args(["-c", program]).arg(&path)).expect_code(0);
    let snapshot: Value = serde_json::from_str(&read.stdout).unwrap();
    let frames = snapshot["device_traces"][0][0]["frames"].as_array().unwrap();
    let names: Vec<&str> = frames.iter().map(|frame| frame["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["device", "cuMemAlloc", "segment", "<module>"]);
    assert_eq!(frames[2]["line"], 27);
    assert_eq!(snapshot["segments"].as_array().unwrap().len(), 24);
}

#[test]
fn snapshot_is_read_by_another_tool() {
    let test = "memory_outputs::snapshot_is_read_by_another_tool";
    if !python(test) {
        return;
    }
    let reader = match reader() {
        Ok(reader) => reader,
        Err(why) => return skipped(test, why),
    };
    let traced = cached("grows");
    let (path, _) = snapshot(&traced);
    let mut import = Command::new(reader);
    import.args(["import", "--no-focus"]).arg(&path).current_dir(path.parent().unwrap());
    let ended = finish(&mut import).expect_code(0);
    let said = ended.stdout + &ended.stderr;
    assert!(said.contains("All events have been successfully replayed"), "{said}");
    assert!(said.contains("2 distinct callstacks"), "{said}");
}

/// `pt-snap` in a virtual environment that is made once; or why it cannot be had.
fn reader() -> &'static Result<PathBuf, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    MADE.get_or_init(|| {
        let environment = folder::base().join("pt-snap-0.4.1");
        let (reader, ready) = (environment.join("bin/pt-snap"), environment.join("ready"));
        if ready.exists() {
            return Ok(reader);
        }
        let _ = std::fs::remove_dir_all(&environment);
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", READER];
        for command in [
            Command::new("python3").args(["-m", "venv"]).arg(&environment),
            Command::new(environment.join("bin/python")).args(pip),
        ] {
            let ended = command.output().map_err(|error| error.to_string())?;
            if !ended.status.success() {
                return Err(format!(
                    "{READER} cannot be installed: {}",
                    String::from_utf8_lossy(&ended.stderr)
                ));
            }
        }
        std::fs::write(ready, "").unwrap();
        Ok(reader)
    })
}

/// The counter events of a name in a Chrome trace: times and values.
fn chrome_counters(document: &Value, name: &str) -> Vec<(f64, serde_json::Map<String, Value>)> {
    let events = document["traceEvents"].as_array().unwrap().iter();
    let of = events.filter(|event| event["ph"] == "C" && event["name"] == name);
    of.map(|event| (event["ts"].as_f64().unwrap(), event["args"].as_object().unwrap().clone())).collect()
}

#[test]
fn timelines_have_memory_as_counters() {
    if !python("memory_outputs::timelines_have_memory_as_counters") {
        return;
    }
    let exported = |mode: &str, options: &[&str]| {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/programs/memory_use.py");
        let traced = run_command("python3").arg(program).arg(mode).succeed();
        let ended = finish(
            gputrace().args(["export", "--format", "chrome", "-o", "-"]).args(options).arg(traced.trace()),
        )
        .expect_code(0);
        (serde_json::from_str::<Value>(&ended.stdout).unwrap(), ended.stderr)
    };
    let (document, _) = exported("leak", &[]);
    let held = chrome_counters(&document, "memory held on devices");
    assert!(held.is_sorted_by(|a, b| a.0 <= b.0));
    let bytes: Vec<u64> = held.iter().map(|(_, args)| args["bytes"].as_u64().unwrap()).collect();
    assert_eq!((bytes.len(), bytes.iter().max(), bytes.last()), (66, Some(&(576 << 20)), Some(&(64 << 20))));
    let lines = chrome_counters(&document, "memory by line");
    let (_, last) = lines.last().unwrap();
    let mut found: Vec<_> =
        last.iter().map(|(name, bytes)| (name.as_str(), bytes.as_u64().unwrap())).collect();
    found.sort_unstable_by_key(|(_, bytes)| *bytes);
    let [(whole, 0), (leak, leaked)] = found[..] else { panic!("{last:?}") };
    assert!(
        whole.starts_with("allocate memory_use.py:") && leak.starts_with("leak memory_use.py:"),
        "{found:?}"
    );
    assert_eq!(leaked, 64 << 20);
    let (document, _) = exported("pools", &[]);
    let pools = chrome_counters(&document, "memory pools");
    let (_, last) = pools.last().unwrap();
    assert_eq!(last["own of device 0: in use"], json!(8 << 20), "{last:?}");
    assert_eq!(last.len(), 3, "{last:?}");
    // Of a part it is not known what was live before.
    let (document, warned) = exported("leak", &["--from", "1ns"]);
    assert!(chrome_counters(&document, "memory held on devices").is_empty());
    assert!(warned.contains("counters of memory are left out"), "{warned}");
}
