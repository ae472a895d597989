//! Programs in a sandbox or with hardly any resources: they run as without us, and are traced or
//! told in one line why not.

use std::process::Command;

use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{self, Run, Traced, bare, count, run, run_with};

/// What becomes of the events.
#[derive(Clone, Copy, Debug)]
enum Then {
    AllCounted,
    /// Nothing is traced, and one line of stderr says so with these words.
    Said(&'static str),
}

fn alone(arguments: &[&str]) -> Ended {
    let mut command = Command::new(compiled("limits", Link::Driver));
    tool::clean(&mut command);
    command.args(arguments).env("LD_LIBRARY_PATH", tool::simulated_folder());
    let ended = finish(&mut command).expect_code(7);
    assert!(ended.stdout.starts_with("errno 4711\n"), "{}", ended.stdout);
    ended
}

#[track_caller]
fn ends_as_alone(traced: Run, arguments: &[&str], then: Then) {
    let case = format!("{arguments:?} {then:?}");
    let expected = alone(arguments);
    let is_bare = traced.is_bare();
    let traced = arguments.iter().fold(traced, |run, argument| run.arg(argument)).go();
    let Traced { ended, .. } = &traced;
    assert_eq!((ended.code(), ended.signal()), (expected.code(), None), "{case}\n{}", ended.stderr);
    assert_eq!(ended.stdout, expected.stdout, "{case}\n{}", ended.stderr);
    let said: Vec<_> =
        ended.stderr.lines().filter(|line| line.starts_with("gputrace: not tracing")).collect();
    match then {
        Then::AllCounted => {
            assert!(said.is_empty(), "{case}: {said:?}");
            assert_eq!(count(&traced.report(), "launches"), 10, "{case}\n{}", ended.stderr);
        }
        Then::Said(words) => {
            assert!(said.len() == 1 && said[0].contains(words), "{case}\n{}", ended.stderr);
            if is_bare {
                return;
            }
            // The session knows it too: somebody else may have the program's standard error.
            let why = said[0].strip_prefix("gputrace: not tracing: ").unwrap();
            let known = ended.stderr.lines().any(|line| {
                line.starts_with("gputrace: warning: not recorded: process ") && line.ends_with(why)
            });
            assert!(known, "{case}\n{}", ended.stderr);
            assert!(traced.read("summary.txt").contains("not recorded: process "), "{case}");
        }
    }
}

/// A call that a filter answers with each error, under `run` and with auto-collect.
#[track_caller]
fn forbidden(call: &str, under_run: Then, in_bare_use: Then) {
    for error in ["EPERM", "ENOSYS", "EAGAIN"] {
        // That a full queue answers EAGAIN makes a connection wait for its bound, every time.
        if (call, error) == ("connect", "EAGAIN") {
            continue;
        }
        let arguments = ["forbid", call, error];
        ends_as_alone(run("limits"), &arguments, under_run);
        ends_as_alone(bare("limits"), &arguments, in_bare_use);
    }
}

#[track_caller]
fn limited(name: &str, value: &str, under_run: Then, in_bare_use: Then) {
    let arguments = ["limit", name, value];
    ends_as_alone(run("limits"), &arguments, under_run);
    ends_as_alone(bare("limits"), &arguments, in_bare_use);
}

const NO_MEMORY: Then = Then::Said("no shared memory");
const NO_FILE: Then = Then::Said("no shared memory: raise RLIMIT_FSIZE");
const NO_ADDRESS_SPACE: Then = Then::Said("less than 1 GiB of address space is left, or 128 MiB of data");
const NO_COLLECTOR: Then = Then::Said("the collector could not be started");
const NO_DESCRIPTORS: Then = Then::Said("hardly any descriptor is free");
const NOBODY: Then = Then::Said("nobody answers");
const NO_HAND_OVER: Then = Then::Said("did not take the hand-over");

#[test]
fn filter_that_forbids_memory_files() {
    forbidden("memfd_create", NO_MEMORY, NO_MEMORY);
}

#[test]
fn filter_that_forbids_sockets() {
    forbidden("socket", NOBODY, NO_COLLECTOR);
}

/// Memory is read in another way where there is a filter.
#[test]
fn filter_that_ends_who_copies_memory() {
    for error in ["ENDS", "EPERM"] {
        let arguments = ["forbid", "process_vm_readv", error];
        ends_as_alone(run("limits"), &arguments, Then::AllCounted);
        ends_as_alone(bare("limits"), &arguments, Then::AllCounted);
    }
}

/// The first start of a paused session has all threads pass a barrier, but does not ask for one where there
/// is a filter.
#[test]
fn filter_that_ends_who_asks_for_barriers() {
    for error in ["ENDS", "EPERM"] {
        let arguments = ["forbid", "membarrier", error];
        let expected = alone(&arguments);
        let traced = run_with(&["--capture-range", "launches:3-7"], compiled("limits", Link::Driver));
        let traced = arguments.iter().fold(traced, |run, argument| run.arg(argument)).go();
        assert_eq!((traced.ended.code(), &traced.ended.stdout), (expected.code(), &expected.stdout));
        let report = traced.report();
        assert_eq!((count(&report, "launches"), count(&report["recording"], "paused_launches")), (5, 5));
        assert_eq!((count(&report, "timed_operations"), count(&report, "device_only")), (5, 0), "{report:#}");
        let notices = report["notices"].to_string();
        assert!(!notices.contains("launch did not return"), "{notices}");
    }
}

/// With auto-collect the collector is at the other end of a pair, and nobody connects.
#[test]
fn filter_that_forbids_connections() {
    forbidden("connect", NOBODY, Then::AllCounted);
}

#[test]
fn filter_that_forbids_messages() {
    forbidden("sendmsg", NO_HAND_OVER, NO_HAND_OVER);
}

#[test]
fn filter_that_forbids_processes() {
    forbidden("fork", Then::AllCounted, NO_COLLECTOR);
}

/// It answers as RLIMIT_NPROC does, too, which root is not held to.
#[test]
fn filter_that_forbids_threads_and_processes() {
    forbidden("clone", Then::AllCounted, NO_COLLECTOR);
}

#[test]
fn limit_without_a_free_descriptor_is_survived() {
    limited("nofile", "0", NO_DESCRIPTORS, NO_DESCRIPTORS);
}

/// Those that are left are the program's: the start takes none of the last sixteen.
#[test]
fn limit_with_few_descriptors_is_survived() {
    for left in ["1", "2", "3", "5", "8", "16", "19"] {
        limited("nofile", left, NO_DESCRIPTORS, NO_DESCRIPTORS);
    }
    for left in ["24", "40"] {
        limited("nofile", left, Then::AllCounted, Then::AllCounted);
    }
}

#[test]
fn limit_with_little_address_space_is_survived() {
    for (mebibytes, under_run, in_bare_use) in [
        ("0", NO_ADDRESS_SPACE, NO_ADDRESS_SPACE),
        ("2", NO_ADDRESS_SPACE, NO_ADDRESS_SPACE),
        ("12", NO_ADDRESS_SPACE, NO_ADDRESS_SPACE),
        ("40", NO_ADDRESS_SPACE, NO_ADDRESS_SPACE),
        ("120", NO_ADDRESS_SPACE, NO_ADDRESS_SPACE),
        ("200", NO_ADDRESS_SPACE, NO_ADDRESS_SPACE),
        ("1000", NO_ADDRESS_SPACE, NO_ADDRESS_SPACE),
        ("1040", Then::AllCounted, Then::AllCounted),
    ] {
        limited("as", mebibytes, under_run, in_bare_use);
    }
}

/// It counts the pages that may be written alone.
#[test]
fn limit_with_little_data_memory_is_survived() {
    limited("data", "100", NO_ADDRESS_SPACE, NO_ADDRESS_SPACE);
    limited("data", "200", Then::AllCounted, Then::AllCounted);
}

/// A limit that may be raised is the program's own affair: the collector has the highest there is.
#[test]
fn limit_on_the_program_is_none_on_its_collector() {
    let traced = bare("limits").arg("soft").arg("as").arg("1100").go().expect_code(7);
    assert!(
        traced.ended.stdout.ends_with("its collector may have all there is\n"),
        "{}",
        traced.ended.stdout
    );
    assert_eq!(count(&traced.report(), "launches"), 10);
}

#[test]
fn limit_without_locked_memory_is_survived() {
    limited("memlock", "0", Then::AllCounted, Then::AllCounted);
}

/// A file that grows past the limit raises SIGXFSZ, which kills: we do not try.
#[test]
fn limit_without_written_files_is_survived() {
    limited("fsize", "0", NO_FILE, NO_FILE);
}
