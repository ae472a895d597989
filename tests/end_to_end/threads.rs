//! Many threads, at once and one after another.

use crate::harness::life::same_as_untraced;
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

#[test]
fn thousands_of_short_lived_threads_lose_nothing() {
    same_as_untraced("thread_storm", &[]).launches(4000);
}

#[test]
fn destructors_of_thread_locals_may_launch() {
    same_as_untraced("thread_destructors", &[]).launches(240);
}

/// `cuInit`, launches, handlers and ends, each where there is hardly any stack.
#[test]
fn smallest_stacks_are_large_enough() {
    for (how, launches) in [("return", 7), ("thread", 5), ("thread_at_once", 5), ("handler", 7)] {
        same_as_untraced("small_stacks", &[how]).launches(launches);
    }
}
