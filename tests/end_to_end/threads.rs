//! Many threads, at once and one after another.

use crate::harness::tool::{calls, count, dropped, run};

#[test]
fn launches_of_all_threads_are_there() {
    let traced = run("threads").succeed();
    let report = traced.report();
    assert_eq!(count(&report, "launches"), 400);
    assert_eq!(calls(&report, "first_kernel"), 400);
    assert_eq!(dropped(&report), 0);
}

#[test]
fn threads_that_come_and_go_lose_nothing() {
    let report = run("thread_churn").succeed().report();
    assert_eq!(count(&report, "launches"), 300);
    assert_eq!(dropped(&report), 0);
}
