//! However a program ends, its code is kept and what it published is read.

use crate::harness::tool::{Traced, calls, count, run};

/// Runs the program to that end, and checks what was recorded.
#[track_caller]
fn ending(how: &str) -> Traced {
    let traced = run("ending").arg(how).go();
    let report = traced.report();
    assert_eq!(count(&report, "launches"), 3, "{how}\n{}", traced.ended.stderr);
    traced
}

#[test]
fn ends_that_run_handlers() {
    for how in ["return", "exit", "thread", "main_thread_leaves"] {
        let traced = ending(how).expect_code(5);
        assert_eq!(calls(&traced.report(), "first_kernel"), 3, "{how}");
    }
}

#[test]
fn ends_that_run_none() {
    for how in ["_exit", "quick_exit"] {
        let traced = ending(how).expect_code(5);
        assert_eq!(calls(&traced.report(), "first_kernel"), 3, "{how}");
    }
}

#[test]
fn ends_that_nobody_can_catch() {
    ending("syscall").expect_code(5);
    assert_eq!(ending("kill").ended.signal(), Some(libc::SIGKILL));
}

#[test]
fn a_signal_that_kills_the_program_kills_us_the_same_way() {
    assert_eq!(ending("abort").ended.signal(), Some(libc::SIGABRT));
    assert_eq!(ending("segv").ended.signal(), Some(libc::SIGSEGV));
}
