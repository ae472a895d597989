//! Programs that do what they may and nobody expects.

use crate::harness::tool::{bare, calls, count, dropped, run};

#[test]
fn closing_our_descriptors_costs_no_events() {
    let traced = run("closes_descriptors").succeed();
    let report = traced.report();
    assert_eq!(count(&report, "launches"), 10);
    assert_eq!(calls(&report, "first_kernel"), 10);
    assert_eq!(dropped(&report), 0);
}

#[test]
fn closing_our_descriptors_in_bare_use_harms_nobody() {
    bare("closes_descriptors").go().expect_code(0);
}
