//! Forked and exec'd children join the session as processes of their own.

use crate::harness::program::{Link, compiled};
use crate::harness::tool::{bare, calls, count, run, run_command};

#[test]
fn parent_and_child_are_both_counted() {
    let report = run("fork_first").succeed().report();
    assert_eq!(count(&report, "launches"), 10);
    assert_eq!(calls(&report, "first_kernel"), 10);
}

#[test]
fn children_that_only_exit_change_nothing() {
    let report = run("fork_after").succeed().report();
    assert_eq!(count(&report, "launches"), 6);
}

#[test]
fn an_exec_ends_one_process_and_begins_another() {
    let report = run("exec_after").arg(compiled("basic", Link::Driver)).succeed().report();
    assert_eq!(count(&report, "launches"), 12);
    assert_eq!(calls(&report, "first_kernel"), 9);
}

#[test]
fn an_exec_of_a_program_without_cuda_keeps_what_was_recorded() {
    let traced = run("exec_after").arg("/bin/echo").arg("gone").succeed();
    assert_eq!(traced.ended.stdout, "gone\n");
    assert_eq!(count(&traced.report(), "launches"), 2);
}

#[test]
fn children_of_a_shell_join() {
    let script = format!("{0} & {0}; wait", compiled("basic", Link::Driver).display());
    let report = run_command("sh").arg("-c").arg(script).succeed().report();
    assert_eq!(count(&report, "launches"), 20);
}

#[test]
fn programs_started_in_between_change_nothing() {
    let report = run("spawns").succeed().report();
    assert_eq!(count(&report, "launches"), 5);
    bare("spawns").succeed();
}
