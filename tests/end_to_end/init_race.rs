//! Several threads whose first use of CUDA comes at the same moment: each thread's launches are recorded,
//! whichever thread starts the session.

use std::cell::Cell;
use std::path::Path;

use crate::harness::life::same_command_as_untraced;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{count, dropped};

/// What each thread launches.
const LAUNCHES: u64 = 9;

/// Runs the program until the session was there in time in each life, which a loaded machine may need some
/// tries for. In every try what is missing is counted, and the record does not claim to be complete.
#[track_caller]
fn becomes_exact(program: &Path, arguments: &[&str], threads: u64) {
    const TRIES: u32 = 8;
    for _ in 0..TRIES {
        let is_exact = Cell::new(true);
        same_command_as_untraced(program, arguments).each(|report, how| {
            let missing = threads * LAUNCHES - count(report, "launches");
            let early = report["dropped"]["before_session"].as_u64().unwrap_or(0);
            assert_eq!(dropped(report), early, "{how}: {report:#}");
            assert!(missing <= early, "{how}: {missing} launches are missing and {early} calls counted");
            assert_eq!(report["complete"], early == 0, "{how}: {report:#}");
            is_exact.set(is_exact.get() && early == 0);
        });
        if is_exact.get() {
            return;
        }
    }
    panic!("the session was never there in time in {TRIES} tries");
}

#[track_caller]
fn threads_become_exact(how: &str, threads: u64) {
    becomes_exact(&compiled("init_race", Link::Driver), &[how, &threads.to_string()], threads);
}

#[test]
fn init_race_of_2_to_64_threads_records_every_launch() {
    for threads in [2, 4, 8, 16, 64] {
        threads_become_exact("threads", threads);
    }
}

#[test]
fn init_race_beside_forks_records_every_launch() {
    threads_become_exact("fork", 8);
}

/// Each child has two threads, whose process begins a session of its own.
#[test]
fn init_race_in_forked_children_records_every_launch() {
    becomes_exact(&compiled("init_race", Link::Driver), &["children", "4"], 8);
}

/// The constructor's thread holds the loader's lock while it waits for the session, and whoever starts the
/// session wants that lock to load libcupti.
#[test]
fn init_race_with_a_constructor_under_the_loaders_lock_ends_and_is_exact() {
    let plugin = compiled("init_race_plugin", Link::DriverShared);
    becomes_exact(&compiled("init_race", Link::Driver), &["constructor", plugin.to_str().unwrap()], 2);
}
