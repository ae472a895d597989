//! Snapshots as Python's own pickle reads them.

use std::io::Write;
use std::process::{Command, Stdio};

use gputrace_wire::call::{Detail, Memory, memory};
use gputrace_wire::cell::kind;
use serde_json::{Value, json};

use super::history::{Action, ENTRIES_MAX, MemoryHistory};
use super::pickle::Pickle;
use super::{FORMAT, io};
use crate::export::viewer_tests::{exported, recorded};
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

/// What Python reads, or `None` where there is no Python.
fn read(pickle: &[u8]) -> Option<Value> {
    let program = "import json, pickle, sys; json.dump(pickle.load(sys.stdin.buffer), sys.stdout)";
    let mut python = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .inspect_err(|error| println!("SKIPPED: no python3: {error}"))
        .ok()?;
    python.stdin.take().unwrap().write_all(pickle).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn pickled(write: impl Fn(&mut Pickle<Vec<u8>>) -> io::Result<()>) -> Option<Value> {
    let mut pickle = Pickle::new(Vec::new()).unwrap();
    write(&mut pickle).unwrap();
    read(&pickle.end().unwrap())
}

#[test]
fn numbers_and_texts_are_those_that_were_written() {
    let numbers =
        [0, 1, 255, 256, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 38, (1 << 39) - 1, 1 << 63, u64::MAX];
    let long = "ä".repeat(200);
    let found = pickled(|pickle| {
        pickle.begin_list()?;
        numbers.iter().try_for_each(|number| pickle.number(*number))?;
        pickle.text(&long)?;
        let memo = pickle.memoize()?;
        for _ in 0..300 {
            pickle.text("")?;
            pickle.memoize()?;
        }
        pickle.again(memo)?;
        pickle.flag(true)?;
        pickle.end_list()
    });
    let Some(found) = found else { return };
    let found = found.as_array().unwrap();
    assert_eq!(found[..11], numbers.map(|number| json!(number)));
    assert_eq!((&found[11], &found[312], &found[313]), (&json!(long), &json!(long), &json!(true)));
}

fn call(kind: u16, address: u64, bytes: u64, at_ns: u64, status: u16) -> HostCall {
    let what = Memory { memory: memory::DEVICE, bytes, address, ..Memory::default() };
    HostCall { kind, start_ns: at_ns, status, stack: 5, detail: Detail::Memory(what), ..HostCall::default() }
}

#[test]
fn entries_are_in_the_order_of_time_and_frees_have_their_sizes() {
    let (mut history, definitions) = (MemoryHistory::default(), Definitions::default());
    // The free of another thread arrives first.
    for call in [
        call(kind::FREE, 0x1000, 0, 20, 0),
        call(kind::ALLOC, 0x1000, 64, 10, 0),
        call(kind::ALLOC, 0x1000, 32, 20, 0),
        call(kind::ALLOC, 0, 1 << 40, 30, 2),
        // Never allocated, and refused: neither is an entry.
        call(kind::FREE, 0x9000, 0, 40, 0),
        call(kind::FREE, 0x1000, 0, 41, 1),
    ] {
        history.add(&call, &definitions);
    }
    let entries = history.finish();
    let found: Vec<_> = entries.iter().map(|entry| (entry.action, entry.bytes, entry.held_bytes)).collect();
    let expected = [
        (Action::Allocated, 64, 64),
        (Action::Freed, 64, 0),
        (Action::Allocated, 32, 32),
        (Action::Refused, 1 << 40, 32),
    ];
    assert_eq!(found, expected);
    assert_eq!(history.live.values().map(|live| live.bytes).sum::<u64>(), 32);
}

#[test]
fn earlier_entries_are_dropped_and_counted() {
    let (mut history, definitions) = (MemoryHistory::default(), Definitions::default());
    let turns = 3 * ENTRIES_MAX as u64;
    for turn in 0..turns {
        history.add(&call(kind::ALLOC, 0x1000, 64, 10 * turn, 0), &definitions);
        history.add(&call(kind::FREE, 0x1000, 0, 10 * turn + 5, 0), &definitions);
    }
    history.add(&call(kind::ALLOC, 0x2000, 1, 1, 0), &definitions);
    let entries = history.finish();
    assert_eq!((entries.len(), history.dropped), (ENTRIES_MAX, 2 * turns + 1 - ENTRIES_MAX as u64));
    assert_eq!(entries.last().map(|entry| entry.at_ns), Some(10 * turns - 5));
    assert_eq!(history.live.len(), 1);
}

#[test]
fn snapshot_of_a_recorded_run_has_what_the_report_has() {
    let exported = exported(&FORMAT, &recorded()[1]);
    let Some(snapshot) = read(&exported.bytes) else { return };
    let memory = exported.aggregates.memory.iter().next().unwrap().1;
    let segments = snapshot["segments"].as_array().unwrap();
    let sum = |of: &str| segments.iter().map(|segment| segment[of].as_u64().unwrap()).sum::<u64>();
    assert_eq!((segments.len() as u64, sum("total_size")), (memory.on_device.count, memory.on_device.bytes));
    assert_eq!(sum("allocated_size"), sum("total_size"));
    assert_eq!(segments[0]["segment_pool_id"], json!([0, 0]));
    assert_eq!(segments[0]["blocks"][0]["state"], "active_allocated");
    let frames = &segments[0]["frames"];
    assert_eq!(frames[0], json!({"name": "device", "filename": "", "line": 0}));
    let entries = snapshot["device_traces"][0].as_array().unwrap();
    let count = |action: &str| entries.iter().filter(|entry| entry["action"] == action).count() as u64;
    let allocated: u64 =
        memory.kinds().filter(|(kind, _)| *kind == 1).map(|(_, kind)| kind.allocated.count).sum();
    assert_eq!((count("alloc"), count("segment_alloc"), count("oom")), (allocated, allocated, 0));
    let times: Vec<u64> = entries.iter().map(|entry| entry["time_us"].as_u64().unwrap()).collect();
    assert!(times.is_sorted() && times[0] > 1_600_000_000_000_000, "since the Unix epoch");
}
