//! Sessions of which only a part has device times: what is measured, what is estimated, and where that is
//! said.

use crate::aggregate::{Aggregates, WindowPlan, Windowed};
use crate::batch::Batch;
use crate::flame::Flame;
use crate::model::{Model, Totals};
use crate::report::tests::tape::{Tape, python_stacks};
use crate::report::{DeviceTimes, Report, TextOptions, named};

/// A training loop of half a second whose kernels vary, and one kernel that runs once.
fn batches() -> Vec<Batch> {
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    for step in 0..8_000u64 {
        tape.at(112);
        tape.copy(11, 1, 1 << 20, 45_000 + step % 9 * 100);
        for layer in 0..4 {
            tape.at(110);
            tape.launch(41, 512, Some(1_200 + step % 7 * 100 + layer));
            tape.at(113);
            tape.launch(40, 128, Some(18_000 + step % 11 * 200));
        }
        tape.at(115);
        tape.fill(4096, 900);
    }
    tape.at(114);
    tape.launch(42, 64, Some(2_000));
    tape.batches()
}

fn full(batches: &[Batch]) -> (Totals, Aggregates) {
    let mut model = Model::new(Aggregates::default());
    batches.iter().for_each(|batch| model.consume(batch));
    model.finish()
}

fn in_windows(batches: &[Batch], plan: &str) -> (Totals, Aggregates) {
    let plan: WindowPlan = plan.parse().unwrap();
    let mut model = Model::new(Windowed::new(plan, Aggregates::default()));
    batches.iter().for_each(|batch| model.consume(batch));
    let (mut totals, sink) = model.finish();
    totals.in_windows(&sink.counts);
    (totals, sink.sink)
}

#[test]
fn estimates_are_near_the_truth_and_have_an_error() {
    let batches = batches();
    let (totals, aggregates) = full(&batches);
    let truth = Report::new(&totals, &aggregates);
    let (totals, aggregates) = in_windows(&batches, "1ms/10ms,7");
    let report = Report::new(&totals, &aggregates);
    assert_eq!((report.device_times, truth.device_times), (DeviceTimes::Windows, DeviceTimes::Full));
    assert_eq!(report.counts.executed_operations, truth.counts.executed_operations);
    let all = report.estimate.as_ref().unwrap();
    let true_ns = truth.kernel_ns(None).unwrap() + truth.moved_ns().unwrap();
    assert!(all.time.total_ns.abs_diff(true_ns) <= all.time.error_ns + 2_000, "{all:?}, truly {true_ns}");
    assert!(all.time.error_ns * 50 < true_ns, "{all:?}");
    // The kernel that ran once was in no window.
    assert_eq!(all.time.unmeasured_calls, 1);
    assert_eq!(all.measured_calls, report.counts.timed_operations);
    assert!(all.windows > 30 && all.window_operations_lost == 0, "{all:?}");
    for kernel in &report.kernels {
        let known = truth.kernels.iter().find(|known| known.full_name == kernel.full_name).unwrap();
        let estimate = kernel.estimate.unwrap();
        assert_eq!(kernel.calls, known.calls);
        if estimate.unmeasured_calls == 0 {
            let (ours, true_ns) = (kernel.time_ns().unwrap(), known.time_ns().unwrap());
            assert!(ours.abs_diff(true_ns) * 20 < true_ns, "{}: {ours} {true_ns}", kernel.name);
        }
    }
    for line in &truth.lines {
        let ours = report.lines.iter().find(|ours| ours.location == line.location).unwrap();
        let (Some(ours_ns), Some(true_ns)) = (ours.charged_time_ns(), line.charged_ns) else { continue };
        assert!(ours_ns.abs_diff(true_ns) * 20 < true_ns, "{}", line.location.text());
    }
    let moved = |report: &Report| report.transfers[0].moved.time_ns().unwrap();
    assert!(moved(&report).abs_diff(moved(&truth)) * 50 < moved(&truth));
    let threads: u64 = report.threads.iter().filter_map(|thread| thread.estimate).map(|of| of.total_ns).sum();
    assert!(threads.abs_diff(all.time.total_ns) < 10, "{threads} {all:?}");
}

#[test]
fn summary_and_tables_say_what_is_estimated() {
    let batches = batches();
    let (totals, aggregates) = in_windows(&batches, "1ms/10ms,7");
    let report = Report::new(&totals, &aggregates);
    let text = report.to_text(&TextOptions::default());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let windows = report.estimate.as_ref().unwrap().windows;
    assert!(words.contains("Estimated GPU time from "), "{text}");
    assert!(words.contains(&format!("% of the operations in {windows} windows: ")), "{text}");
    assert!(words.contains("without 1 operation of which none like it was timed"), "{text}");
    let heading = text.lines().find(|line| line.starts_with("Kernels")).unwrap();
    let columns: Vec<&str> = heading.split_whitespace().collect();
    assert_eq!(columns[2..6], ["calls", "total", "error", "share"], "{heading}");
    let tables = named::tables(&report, &["cuda_gpu_kern_sum".to_owned(), "devices".to_owned()]);
    assert_eq!(tables[0].columns[1..3], ["Total Time (ns)", "Error (ns)"]);
    assert!(tables[0].rows.iter().all(|row| row.len() == tables[0].columns.len()));
    assert!(!tables[1].columns.contains(&"Error (ns)"));
    let json = report.to_json();
    assert!(json.contains("\"estimate\"") && json.contains("\"unmeasured_calls\": 1"));

    // Nothing of it where all is measured.
    let (totals, aggregates) = full(&batches);
    let report = Report::new(&totals, &aggregates);
    assert!(aggregates.estimates.is_none() && report.estimate.is_none());
    let text = report.to_text(&TextOptions::default());
    assert!(!text.contains("Estimated") && !text.contains("error"), "{text}");
    assert!(!report.to_json().contains("estimate"));
    let table = &named::tables(&report, &["cuda_gpu_kern_sum".to_owned()])[0];
    assert!(!table.columns.contains(&"Error (ns)"));
}

#[test]
fn flamegraph_has_the_estimate_and_marks_what_is_uncertain() {
    let batches = batches();
    let (totals, aggregates) = in_windows(&batches, "1ms/10ms,7");
    let report = Report::new(&totals, &aggregates);
    let flame = Flame::new(&totals, &aggregates);
    let all = report.estimate.unwrap();
    assert!(flame.total_ns().abs_diff(all.time.total_ns) < 20, "{} {all:?}", flame.total_ns());
    assert!(flame.title().contains(" of GPU time, estimated ±"), "{}", flame.title());
    let svg = flame.svg();
    assert!(svg.contains("% of the operations") && svg.contains(" ±"), "{}", flame.subtitle());
    assert!(flame.subtitle().contains("1 is not in it, for none like it was timed"), "{}", flame.subtitle());
    assert!(!svg.contains("unsure"));
    let folded_us: u64 = flame.weighted().map(|(_, us)| us).sum();
    assert!((folded_us * 1_000).abs_diff(all.time.total_ns) < 2_000);

    // A single window says little.
    let drawn = |seed| {
        let (totals, aggregates) = in_windows(&batches, &format!("1ms/400ms,{seed}"));
        let windows = Report::new(&totals, &aggregates).estimate.unwrap().windows;
        (windows == 1).then(|| Flame::new(&totals, &aggregates).svg())
    };
    let svg = (1..20).find_map(drawn).unwrap();
    assert!(svg.contains("error over 10%") && svg.contains("\n~"));

    let (totals, aggregates) = full(&batches);
    let svg = Flame::new(&totals, &aggregates).svg();
    assert!(!svg.contains("unsure") && !svg.contains('±') && !svg.contains("estimated"));
}

/// Launches without a stack are where others of their kernel were, and nowhere else.
#[test]
fn lines_have_launches_without_a_stack() {
    let batches = batches();
    let (totals, aggregates) = full(&batches);
    let truth = Report::new(&totals, &aggregates);
    for (plan, is_counted) in [("1ms/10ms,7,stacks", false), ("1ms/10ms,7,counts", true)] {
        let (totals, aggregates) = in_windows(&batches, plan);
        let report = Report::new(&totals, &aggregates);
        assert_eq!(report.counts.executed_operations, truth.counts.executed_operations, "{plan}");
        assert_eq!(report.counts.launches, truth.counts.launches, "{plan}");
        let (unstacked, counted) = (report.counts.unstacked_launches, report.counts.counted_launches);
        assert_eq!((unstacked > 50_000, counted > 50_000), (!is_counted, is_counted), "{plan}");
        for kernel in &report.kernels {
            let known = truth.kernels.iter().find(|known| known.full_name == kernel.full_name).unwrap();
            assert_eq!((kernel.calls, kernel.estimate.unwrap().calls_error), (known.calls, 0), "{plan}");
        }
        let calls = |report: &Report| report.lines.iter().map(|line| line.charged_calls).sum::<u64>();
        // The kernel that ran once was in no window: nobody knows where it was launched.
        assert_eq!((report.no_line.calls, truth.no_line.calls), (1, 0), "{plan}");
        assert_eq!(calls(&report) + 1, calls(&truth), "{plan}");
        for line in truth.lines.iter().filter(|line| line.charged_calls > 1) {
            let ours = report.lines.iter().find(|ours| ours.location == line.location).unwrap();
            assert!(ours.charged_calls.abs_diff(line.charged_calls) * 20 < line.charged_calls, "{plan}");
            let (Some(ours_ns), Some(true_ns)) = (ours.charged_time_ns(), line.charged_ns) else { continue };
            assert!(ours_ns.abs_diff(true_ns) * 20 < true_ns, "{plan}: {}", line.location.text());
        }
        let all = report.estimate.as_ref().unwrap();
        let sum = |times: Vec<Option<u64>>| times.into_iter().flatten().sum::<u64>();
        let lines = sum(report.lines.iter().map(|line| line.charged_time_ns()).collect());
        assert!(lines.abs_diff(all.time.total_ns) < 20, "{plan}: {lines} {all:?}");
        let threads =
            sum(report.threads.iter().map(|thread| thread.estimate.map(|of| of.total_ns)).collect());
        assert!(threads.abs_diff(all.time.total_ns) < 20, "{plan}: {threads} {all:?}");
        let flame = Flame::new(&totals, &aggregates);
        assert!(flame.total_ns().abs_diff(all.time.total_ns) < 40, "{plan}: {}", flame.total_ns());
        let text = report.to_text(&TextOptions::default());
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(" launches without a stack, of which "), "{text}");
    }
}
