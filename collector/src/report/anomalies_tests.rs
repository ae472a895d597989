//! Anomalies of kernels in the report.

use crate::batch::Counters;
use crate::report::anomalies::REPORTED_PARTS;
use crate::report::tests::tape::{Tape, python_stacks};
use crate::report::{Report, TextOptions};

/// Three kernels: one with even runs, one with three slow runs if `odd`, and one whose runs always vary.
fn report(odd: bool) -> Report {
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    for step in 0..200u64 {
        tape.at(110);
        tape.launch(40, 128, Some(20_000 + step % 5 * 100));
        tape.at(111);
        let slow_ns = match step {
            100 => 90_000,
            120 => 400_000,
            121 => 60_000,
            _ => 30_000 + step % 3 * 50,
        };
        tape.launch(42, 256, Some(if odd { slow_ns } else { 30_000 }));
        tape.at(112);
        tape.launch(41, 512, Some(10_000 + step * 7919 % 40 * 1_000));
    }
    let (totals, aggregates) = tape.play(Counters::default());
    Report::new(&totals, &aggregates)
}

#[test]
fn anomalies_have_worst_run_median_time_and_line() {
    let report = report(true);
    let [anomaly] = &report.anomalies.list[..] else { panic!("{:#?}", report.anomalies) };
    assert_eq!((report.anomalies.runs, report.anomalies.unjudged, report.anomalies.left_out), (3, 0, 0));
    assert_eq!((anomaly.name.as_str(), anomaly.runs, anomaly.worst_ns), ("adam_step", 3, 400_000));
    assert!((30_000..=30_100).contains(&anomaly.median_ns), "{anomaly:?}");
    let over_ns = 60_000 + 370_000 + 30_000;
    assert!((over_ns - 500..=over_ns + 500).contains(&anomaly.over_ns), "{anomaly:?}");
    assert!(anomaly.sigmas > 100.0);
    assert_eq!((anomaly.grid, anomaly.block), ([132, 2, 1], [256, 1, 1]));
    assert_eq!(anomaly.line.as_ref().unwrap().text(), "train.py:24 train_step");
    assert_eq!(anomaly.stack[0].text(), "adam.py:217 Adam.step");
    // It began when that step's third launch was asked for, or after.
    assert!(anomaly.at_ns > 120 * 3 * 3_400 && anomaly.at_ns < 121 * 3 * 3_400 + 5_000, "{anomaly:?}");
    let text = report.to_text(&TextOptions { width: 100, ..TextOptions::default() });
    let at = text.find("Far slower than usual").unwrap_or_else(|| panic!("{text}"));
    let table: Vec<&str> = text[at..].lines().take_while(|line| !line.is_empty()).collect();
    let [_, row] = table[..] else { panic!("{text}") };
    for expected in ["adam_step", " 3 ", "460 µs", "400 µs", "30.", "train.py:24 train_step"] {
        assert!(row.contains(expected), "{expected}: {row}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    // A narrow page keeps what it cost.
    for width in 60..100 {
        let text = report.to_text(&TextOptions { width, ..TextOptions::default() });
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        assert!(text.contains("  460 µs  400 µs"), "{text}");
    }
}

/// One of two hundred runs takes 30 µs more. That matters within 30 ms, and not beyond.
#[test]
fn anomalies_that_cost_nearly_nothing_are_counted_and_not_listed() {
    let report = |wall_ns| {
        let mut tape = Tape::new(false);
        python_stacks(&mut tape);
        tape.at(111);
        for step in 0..200u64 {
            tape.launch(42, 256, Some(if step == 100 { 60_000 } else { 30_000 }));
        }
        let (mut totals, aggregates) = tape.play(Counters::default());
        totals.sessions[0].wall_ns = Some(wall_ns);
        let report = Report::new(&totals, &aggregates);
        assert_eq!((report.wall_ns, report.anomalies.runs), (wall_ns, 1));
        report
    };
    let short = report(30_000 * REPORTED_PARTS);
    assert_eq!((short.anomalies.list.len(), short.anomalies.negligible), (1, 0));
    let long = report(30_000 * REPORTED_PARTS + 1);
    assert_eq!((long.anomalies.list.len(), long.anomalies.negligible), (0, 1));
    assert!(!long.to_text(&TextOptions::default()).contains("Far slower"));
}

#[test]
fn even_runs_are_no_anomalies_and_have_no_table() {
    let report = report(false);
    assert_eq!((report.anomalies.runs, report.anomalies.list.len()), (0, 0));
    assert!(!report.to_text(&TextOptions::default()).contains("Far slower"));
}

#[test]
fn slow_run_has_the_stream_beside_it_and_the_idle_time_before_it() {
    let of = |beside: bool, idle: bool| {
        let mut tape = Tape::new(false);
        python_stacks(&mut tape);
        tape.at(111);
        for step in 0..200u64 {
            let is_slow = step == 120;
            if is_slow && idle {
                tape.wait(200_000_000);
            }
            tape.on(60, 7, 0);
            tape.launch(42, 256, Some(if is_slow { 400_000 } else { 30_000 + step % 3 * 50 }));
            if is_slow && beside {
                tape.on(61, 13, 0);
                tape.launch(41, 512, Some(390_000));
            }
        }
        let (totals, aggregates) = tape.play(Counters::default());
        Report::new(&totals, &aggregates)
    };
    let report = of(true, false);
    let beside = report.anomalies.list[0].beside.unwrap();
    assert!(beside.stream == 13 && (300_000..=390_000).contains(&beside.ns), "{beside:?}");
    let text = report.to_text(&TextOptions::default());
    assert!(text.contains("adam_step: work on stream 13 during 9"), "{text}");
    let report = of(false, true);
    let anomaly = &report.anomalies.list[0];
    assert!(anomaly.beside.is_none() && anomaly.idle_before_ns >= Some(190_000_000), "{anomaly:?}");
    let text = report.to_text(&TextOptions::default());
    assert!(text.contains("adam_step: the first after 200 ms without work"), "{text}");
    let report = of(false, false);
    assert!(report.anomalies.list[0].causes().is_none(), "{:?}", report.anomalies.list[0]);
}
