//! Missing data: device times that never came, records that were lost, traces that end too early.

use gputrace_wire::counter::Counter;

use crate::batch::{Counters, ProcessEnd};
use crate::report::tests::tape::{Tape, training};
use crate::report::{DeviceTimes, Report, TextOptions};
use crate::trace_file::{Damage, DamageReason};

/// The summary without its line breaks.
fn words(report: &Report) -> String {
    report.to_text(&TextOptions::default()).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn missing_times(end: ProcessEnd) -> Report {
    let mut tape = Tape::new(false);
    tape.launch(20, 256, Some(5_000));
    tape.launch(20, 256, None);
    tape.launch(20, 256, None);
    let (totals, aggregates) = tape.end(end, Counters::default());
    Report::new(&totals, &aggregates)
}

#[test]
fn missing_device_times_are_a_loss_and_have_a_reason() {
    for (end, why) in [
        (ProcessEnd::Exit, "CUPTI delivered no record for them"),
        (ProcessEnd::Vanished, "process 4242 ended without exit handlers, and CUPTI had not delivered them"),
        (
            ProcessEnd::Running,
            "process 4242 still ran at the recording's end, and CUPTI had not delivered them",
        ),
    ] {
        let report = missing_times(end);
        assert_eq!(report.counts.untimed_operations, 2);
        assert!(report.dropped.is_empty());
        assert_eq!(report.notices.len(), 1);
        assert_eq!(report.notices[0].severity, "warning");
        let expected = format!("device times are missing for 2 of 3 operations: {why}");
        assert_eq!(report.notices[0].text, expected);
        let text = report.to_text(&TextOptions::default());
        assert!(text.contains("Lost       device times of 2 operations\n"), "{text}");
    }
}

#[test]
fn lost_records_are_given_as_the_reason() {
    let mut tape = Tape::new(false);
    tape.launch(20, 256, None);
    let mut counters = Counters::default();
    counters.values[Counter::BuffersExhausted as usize] = 3;
    let (totals, aggregates) = tape.play(counters);
    let expected = "device times are missing for 1 of 1 operation: their records came too late or were lost \
                (buffers_exhausted 3)";
    assert_eq!(Report::new(&totals, &aggregates).notices[0].text, expected);
}

#[test]
fn damaged_trace_is_not_reported_as_whole() {
    let damage = |reason| vec![("a.gputrace".into(), Damage { offset: 1_992, blocks_read: 5, reason })];
    let (mut totals, aggregates) = Tape::new(false).play(Counters::default());
    totals.damages = damage(DamageReason::Truncated);
    let report = Report::new(&totals, &aggregates);
    assert_eq!((report.damages[0].offset, report.damages[0].read_whole), (1_992, false));
    let text = words(&report);
    assert!(text.contains("Trace read in part: the file ends within a block (at byte 1,992)"), "{text}");
    assert!(text.contains("Lost all from byte 1,992 of the trace on"), "{text}");
    assert!(!text.contains("was seen"), "{text}");

    let (mut totals, aggregates) = training(false);
    totals.damages = damage(DamageReason::Truncated);
    let report = Report::new(&totals, &aggregates);
    assert_eq!(report.devices[0].idle_ns, None, "what is missing may have kept it busy");
    assert!(!words(&report).contains("nothing"));

    totals.damages = damage(DamageReason::Trailing);
    let report = Report::new(&totals, &aggregates);
    assert!(report.damages[0].read_whole && report.devices[0].idle_ns.is_some());
    let text = words(&report);
    assert!(text.contains("end of the trace, all of which was read (at byte 1,992)"), "{text}");
    assert!(text.contains("Lost nothing") && !text.contains("in part"), "{text}");
}

#[test]
fn idle_time_is_not_claimed_if_operations_are_missing() {
    let mut tape = Tape::new(false);
    tape.launch(20, 256, Some(5_000));
    tape.launch(20, 256, None);
    let mut counters = Counters { ring_full: 7, ..Counters::default() };
    counters.values[Counter::RecordsDropped as usize] = 3;
    let (totals, aggregates) = tape.play(counters);
    let report = Report::new(&totals, &aggregates);
    assert_eq!(report.device_times, DeviceTimes::Partial);
    assert_eq!(report.device_time_coverage, 0.5);
    let device = &report.devices[0];
    assert_eq!((device.busy_ns, device.idle_ns), (Some(5_000), None));
    assert_eq!(device.idle_at_most_ns, Some(report.wall_ns - 5_000));
    assert_eq!(report.kernels[0].calls, 2);
    assert_eq!(report.kernels[0].timed_calls, 1);
    let text = report.to_text(&TextOptions::default());
    assert!(text.contains("idle at most"), "{text}");
    assert!(text.contains("cupti_dropped 3, ring_full 7"), "{text}");
}

#[test]
fn losses_that_keep_device_records_do_not_hide_idle_time() {
    let mut tape = Tape::new(false);
    tape.launch(20, 256, Some(5_000));
    let mut counters = Counters::default();
    counters.values[Counter::Nested as usize] = 2;
    let (totals, aggregates) = tape.play(counters);
    let report = Report::new(&totals, &aggregates);
    assert_eq!(report.dropped["nested_calls"], 2);
    assert_eq!(report.devices[0].idle_ns, Some(report.wall_ns - 5_000));
}
