//! Several threads whose first use of CUDA comes at the same moment: each thread's launches are recorded, whichever
//! thread starts the session.

use serde_json::Value;

use crate::harness::life::{same_as_untraced, same_command_as_untraced};
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{count, dropped};

/// What each thread launches.
const LAUNCHES: u64 = 9;

#[track_caller]
fn is_exact(report: &Value, threads: u64, how: &str) {
    assert_eq!(count(report, "launches"), threads * LAUNCHES, "{how}: {report:#}");
    assert_eq!(dropped(report), 0, "{how}: {report:#}");
    assert_eq!(report["complete"], true, "{how}: {report:#}");
}

#[test]
fn init_race_of_2_to_64_threads_records_every_launch() {
    for threads in [2, 4, 8, 16, 64] {
        same_as_untraced("init_race", &["threads", &threads.to_string()])
            .each(|report, how| is_exact(report, threads, how));
    }
}

#[test]
fn init_race_of_four_threads_records_every_launch_each_time() {
    for _ in 0..10 {
        same_as_untraced("init_race", &["threads", "4"]).each(|report, how| is_exact(report, 4, how));
    }
}

#[test]
fn init_race_beside_forks_records_every_launch() {
    same_as_untraced("init_race", &["fork", "8"]).each(|report, how| is_exact(report, 8, how));
}

#[test]
fn init_race_in_forked_children_records_every_launch() {
    same_as_untraced("init_race", &["children", "4"]).each(|report, how| is_exact(report, 8, how));
}

/// The constructor's thread holds the loader's lock while it waits for the session, and whoever starts the session
/// wants that lock to load libcupti.
#[test]
fn init_race_with_a_constructor_under_the_loaders_lock_ends_and_is_exact() {
    let plugin = compiled("init_race_plugin", Link::DriverShared);
    let program = compiled("init_race", Link::Driver);
    for _ in 0..3 {
        let plugin = plugin.to_str().unwrap();
        same_command_as_untraced(&program, &["constructor", plugin])
            .each(|report, how| is_exact(report, 2, how));
    }
}
