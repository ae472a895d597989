//! Tests of calls and records that wait for each other too long.

use super::*;

#[test]
fn launches_that_never_get_a_record_are_emitted_in_order_and_late_records_counted() {
    // As with device times in windows: no record for most launches.
    let count = 400_000;
    let mut feed = ModelFeed::new();
    for correlation in 1..=count {
        feed.cells(HOST, &[launch(correlation, correlation.into()).to_cell()]);
    }
    let early = feed.seen().operations.len();
    assert!(early > 100_000, "memory is bounded: {early}");
    assert!(feed.seen().operations.is_sorted_by_key(|o| o.call.as_ref().unwrap().start_ns));
    feed.cells(RECORDS, &kernel(executed(1, 100)));
    feed.cells(RECORDS, &kernel(executed(count, 100)));
    let (totals, seen) = feed.finish();
    assert_eq!(totals.losses().get("late_records"), Some(&1));
    assert_eq!(totals.counts.device_only, 0);
    assert_eq!(totals.counts.executed, u64::from(count), "a late record's operation counts once");
    let starts: BTreeSet<_> =
        seen.operations.iter().filter_map(|o| o.call.as_ref()).map(|c| c.start_ns).collect();
    assert_eq!(starts.len(), count as usize);
}

#[test]
fn launches_of_threads_whose_buffers_come_late_are_waited_for() {
    let count = 100_000;
    let is_late = |correlation: &u32| correlation.is_multiple_of(8);
    let mut feed = ModelFeed::new();
    for correlation in 1..=count {
        feed.cells(HOST, &[launch(correlation, correlation.into()).to_cell()]);
        if !is_late(&correlation) {
            feed.cells(RECORDS, &kernel(executed(correlation, 100)));
        }
    }
    for correlation in (1..=count).filter(is_late) {
        feed.cells(RECORDS, &kernel(executed(correlation, 100)));
    }
    let (totals, seen) = feed.finish();
    assert_eq!(totals.losses().get("late_records"), None);
    assert!(seen.operations.iter().all(|operation| operation.call.is_some() && operation.timing.is_some()));
    assert_eq!(seen.operations.len(), count as usize);
}

#[test]
fn thread_that_is_held_up_in_a_launch_loses_no_times() {
    // The call's entry comes when the launch returns. By then a later call, which waits too, has its slot.
    let count = 200_000;
    let held_up = [1, 2, 5].map(|turns| count - 100 - (turns << 15));
    let mut feed = ModelFeed::new();
    let is_held_up = |correlation: u32| held_up.contains(&correlation);
    for correlation in 1..=count {
        if !is_held_up(correlation) {
            feed.cells(HOST, &[launch(correlation, correlation.into()).to_cell()]);
        }
        if correlation > 500 && !is_held_up(correlation - 500) {
            feed.cells(RECORDS, &kernel(executed(correlation - 500, 100)));
        }
    }
    for correlation in held_up {
        feed.cells(HOST, &[launch(correlation, correlation.into()).to_cell()]);
    }
    for correlation in (count - 499..=count).chain(held_up) {
        feed.cells(RECORDS, &kernel(executed(correlation, 100)));
    }
    let (totals, seen) = feed.finish();
    assert_eq!(totals.losses().get("late_records"), None);
    let timed = seen.operations.iter().filter(|o| o.call.is_some() && o.timing.is_some()).count();
    assert_eq!(timed, count as usize);
}

#[test]
fn records_beyond_the_limit_are_emitted_without_calls() {
    let mut feed = ModelFeed::new();
    for correlation in 1..=300_000 {
        feed.cells(RECORDS, &kernel(executed(correlation, 100)));
    }
    assert!(feed.seen().operations.len() > 10_000);
    let (totals, seen) = feed.finish();
    assert_eq!(seen.operations.len(), 300_000);
    assert_eq!(totals.counts.device_only, 300_000);
    assert!(totals.counts.evicted_records > 0);
}
