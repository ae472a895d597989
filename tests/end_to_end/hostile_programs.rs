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
fn closing_our_descriptors_with_auto_collect_harms_nobody() {
    bare("closes_descriptors").go().expect_code(0);
}

/// The rings fill while nobody empties them: what does not fit is dropped and counted.
#[test]
fn stopped_collector_costs_events_which_are_counted() {
    let launches = 600_000;
    let traced = run("stops_collector").arg(launches.to_string()).env("GPUTRACE_SIM_PACE", "off").succeed();
    let report = traced.report();
    let lost = report["dropped"]["ring_full"].as_u64().unwrap_or(0);
    assert!(lost > 0, "the rings were never full: {report:#}");
    // The wait at the end, and the service thread's entries, may be among the lost ones.
    let accounted = count(&report, "launches") + lost;
    assert!((launches..launches + 10).contains(&accounted), "{accounted} of {launches}");
    let last = traced.ended.stderr.lines().last().unwrap();
    assert!(last.contains("lost: ") && last.contains("ring_full"), "{last}");
}
