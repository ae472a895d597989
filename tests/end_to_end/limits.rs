//! Programs in a sandbox or with hardly any resources: they run as without us, and are traced or
//! told in one line why not.

use std::process::Command;

use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{self, Run, Traced, bare, count, run};

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
    assert!(ended.stdout.starts_with("errno 4711\nlaunched, "), "{}", ended.stdout);
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
            let told = said[0].strip_prefix("gputrace: not tracing: ").unwrap();
            let known = ended.stderr.lines().any(|line| {
                line.starts_with("gputrace: warning: not recorded: process ") && line.ends_with(told)
            });
            assert!(known, "{case}\n{}", ended.stderr);
            assert!(traced.read("summary.txt").contains("not recorded: process "), "{case}");
        }
    }
}

/// A call that a filter answers with each error, under `run` and in bare use.
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

const NO_MEMORY: Then = Then::Said("no shared memory to be had");
const NO_COLLECTOR: Then = Then::Said("the collector could not be started");
const NO_DESCRIPTORS: Then = Then::Said("hardly any descriptor is free");
const NOBODY: Then = Then::Said("nobody answers");
const NO_HAND_OVER: Then = Then::Said("did not take the hand-over");

#[test]
fn a_filter_that_forbids_memory_files() {
    forbidden("memfd_create", NO_MEMORY, NO_MEMORY);
}

#[test]
fn a_filter_that_forbids_sockets() {
    forbidden("socket", NOBODY, NO_COLLECTOR);
}

/// In bare use the collector is at the other end of a pair, and nobody connects.
#[test]
fn a_filter_that_forbids_connections() {
    forbidden("connect", NOBODY, Then::AllCounted);
}

#[test]
fn a_filter_that_forbids_messages() {
    forbidden("sendmsg", NO_HAND_OVER, NO_HAND_OVER);
}

#[test]
fn a_filter_that_forbids_processes() {
    forbidden("fork", Then::AllCounted, NO_COLLECTOR);
}

/// It answers as RLIMIT_NPROC does, too, which root is not held to.
#[test]
fn a_filter_that_forbids_threads_and_processes() {
    forbidden("clone", Then::AllCounted, NO_COLLECTOR);
}

#[test]
fn no_descriptor_is_left() {
    limited("nofile", "0", NO_DESCRIPTORS, NO_DESCRIPTORS);
}

/// Those that are left are the program's: the start takes none of the last sixteen.
#[test]
fn hardly_any_descriptor_is_left() {
    for left in ["1", "2", "3", "5", "8", "16", "19"] {
        limited("nofile", left, NO_DESCRIPTORS, NO_DESCRIPTORS);
    }
    for left in ["24", "40"] {
        limited("nofile", left, Then::AllCounted, Then::AllCounted);
    }
}

#[test]
fn hardly_any_address_space_is_left() {
    for (mebibytes, under_run, in_bare_use) in [
        ("0", NOBODY, NO_COLLECTOR),
        ("2", NO_MEMORY, NO_MEMORY),
        ("300", Then::AllCounted, Then::AllCounted),
    ] {
        limited("as", mebibytes, under_run, in_bare_use);
    }
}

/// Between the sizes that anything fits in, whatever fits: the program is the same.
#[test]
fn any_limit_of_address_space_leaves_the_program_as_it_is() {
    for mebibytes in ["1", "4", "8", "12", "16", "24", "40", "80", "120"] {
        let arguments = ["limit", "as", mebibytes];
        let expected = alone(&arguments);
        for traced in [run("limits"), bare("limits")] {
            let traced = arguments.iter().fold(traced, |run, argument| run.arg(argument)).go();
            let seen = (traced.ended.code(), &traced.ended.stdout);
            assert_eq!(seen, (Some(7), &expected.stdout), "{mebibytes} MiB\n{}", traced.ended.stderr);
            // In bare use the collector has the same limit, and may not get by with it.
            let lines = ["gputrace: not tracing: ", "gputrace: the collector "];
            let said = lines.iter().any(|line| traced.ended.stderr.contains(line));
            assert!(said || count(&traced.report(), "launches") == 10, "{}", traced.ended.stderr);
        }
    }
}

/// A limit that may be raised is the program's own affair: the collector has the highest there is.
#[test]
fn a_limit_on_the_program_is_none_on_its_collector() {
    // Around what the library itself gets by with, and far less than the collector needs.
    for mebibytes in ["12", "13", "14", "15", "16", "17", "18", "20", "60"] {
        let traced = bare("limits").arg("soft").arg("as").arg(mebibytes).go().expect_code(7);
        // Where there is memory to trace with and none to wait with, the outputs come later.
        let lines = ["gputrace: not tracing: ", "no memory is left to wait for them with"];
        let said = lines.iter().any(|line| traced.ended.stderr.contains(line));
        assert!(said || count(&traced.report(), "launches") == 10, "{mebibytes}\n{}", traced.ended.stderr);
    }
}

#[test]
fn no_memory_may_be_locked() {
    limited("memlock", "0", Then::AllCounted, Then::AllCounted);
}

/// A file that grows past the limit raises SIGXFSZ, which kills: we do not try.
#[test]
fn no_file_may_be_written() {
    limited("fsize", "0", NO_MEMORY, NO_MEMORY);
}
