//! Worker processes by Python's multiprocessing: each is counted for itself, and ends as ever.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use crate::harness::life::same_command_as_untraced;
use crate::harness::needs;
use crate::harness::tool::{Traced, count, dropped};
use crate::python::client_python;

/// What each process said that it launched.
fn launched(traced: &Traced) -> HashMap<u64, u64> {
    let numbers = traced.ended.stderr.lines().filter_map(|line| line.strip_prefix("launches "));
    let pair = |line: &str| {
        let (pid, launches) = line.split_once(' ')?;
        Some((pid.parse().ok()?, launches.parse().ok()?))
    };
    numbers.map(|line| pair(line).unwrap_or_else(|| panic!("{line:?}"))).collect()
}

fn recorded(report: &Value) -> HashMap<u64, u64> {
    let number = |process: &Value, name: &str| process[name].as_u64().unwrap();
    let processes = report["processes"].as_array().unwrap().iter();
    processes.map(|process| (number(process, "pid"), number(process, "launches"))).collect()
}

/// Output and exit codes of the workers are in the program's output, which is what it is without us.
#[track_caller]
fn workers(test: &str, method: &str, users: &str, processes: usize, launches: u64) {
    if !needs::python(test) {
        return;
    }
    let python = match client_python() {
        Ok(python) => python,
        Err(why) => return needs::skipped(test, &why),
    };
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/multiprocessing_client.py");
    let lives = same_command_as_untraced(python, &[client.to_str().unwrap(), method, users]);
    assert_eq!(lives.untraced.code(), Some(6), "{}", lives.untraced.stderr);
    assert!(lives.untraced.stdout.contains("\n[1, 2, 3, 4]\n"), "{}", lives.untraced.stdout);
    let (run, bare) = (launched(&lives.run), launched(&lives.bare));
    lives.each(|report, how| {
        let said = if how == "bare" { &bare } else { &run };
        assert_eq!(said.len(), processes, "{how}");
        assert_eq!(&recorded(report), said, "{how}: {report:#}");
        assert_eq!(count(report, "launches"), launches, "{how}: {report:#}");
        assert_eq!(dropped(report), 0, "{how}: {report:#}");
    });
}

#[test]
fn forked_workers_that_use_cuda_are_counted_each() {
    workers("workers::forked_workers_that_use_cuda_are_counted_each", "fork", "all", 5, 107);
}

#[test]
fn forked_workers_that_use_no_cuda_change_nothing() {
    workers("workers::forked_workers_that_use_no_cuda_change_nothing", "fork", "parent", 1, 7);
}

#[test]
fn spawned_workers_are_counted_each() {
    workers("workers::spawned_workers_are_counted_each", "spawn", "all", 5, 107);
    workers("workers::spawned_workers_are_counted_each", "spawn", "parent", 1, 7);
}

#[test]
fn workers_of_a_fork_server_are_counted_each() {
    workers("workers::workers_of_a_fork_server_are_counted_each", "forkserver", "all", 5, 107);
    workers("workers::workers_of_a_fork_server_are_counted_each", "forkserver", "parent", 1, 7);
}
