//! The report of sessions built by hand, as text and as JSON, compared with golden files; and properties of
//! every report.

mod estimated;
mod evicted;
mod failing;
mod made;
mod missing;
mod schema;
pub(crate) mod tape;

use std::path::PathBuf;

use gputrace_wire::counter::Counter;
use gputrace_wire::definition;

use crate::aggregate::Aggregates;
use crate::batch::{Batch, Counters, ProcessBegin, ProcessEnd, SessionBegin};
use crate::model::{Model, Totals};
use crate::report::{CodeLocation, DeviceTimes, LaunchesReport, LineReport, Report, TextOptions, named};
use crate::trace_file::{Damage, DamageReason};
use failing::failing;
use tape::{Tape, python_stacks, stacked, training};

/// Rewrites golden files instead of comparing.
const BLESS: &str = "GPUTRACE_BLESS";

pub(crate) fn golden(path: &str, now: &str) {
    let golden = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).join(path);
    if std::env::var_os(BLESS).is_some() {
        return std::fs::write(&golden, now).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    if expected != now {
        let name = golden.file_name().unwrap().to_string_lossy().into_owned();
        let kept = std::env::temp_dir().join(format!("gputrace-actual-{name}"));
        std::fs::write(&kept, now).unwrap();
        panic!("{path} differs from {}; {BLESS}=1 accepts\n{now}", kept.display());
    }
}

#[test]
fn lines_are_charged_with_their_operations() {
    let (totals, aggregates) = stacked(false);
    let report = Report::new(&totals, &aggregates);
    let text = report.to_text(&TextOptions::default());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    golden("report/tests/stacked.txt", &text);
    golden("report/tests/stacked.json", &report.to_json());

    let of = |line: u32, function: &str| {
        let found =
            |report: &&LineReport| report.location.line == Some(line) && report.location.function == function;
        report.lines.iter().find(found).unwrap()
    };
    // The module's line is in the stacks of all operations of the steps.
    let module = of(40, "<module>");
    assert_eq!((module.calls, module.self_calls, module.charged_calls), (300 * 9, 0, 0));
    // A library's line launches; the line of user code that called the library is charged.
    let (forward, step) = (of(125, "Linear.forward"), of(22, "train_step"));
    assert!(!forward.own && step.own);
    assert_eq!((forward.calls, forward.self_calls, forward.charged_calls), (1_200, 1_200, 0));
    assert_eq!((step.calls, step.self_calls, step.charged_calls), (2_400, 0, 2_400));
    assert_eq!(step.total_ns, Some(forward.total_ns.unwrap() + of(31, "Linear.forward").total_ns.unwrap()));
    // Operations under a recursive function count once, also those without times.
    let walk = of(61, "walk");
    assert_eq!((walk.calls, walk.timed_calls, walk.total_ns), (300, 150, Some(150 * 2_000)));
    assert_eq!((walk.charged_calls, of(62, "walk").charged_calls), (0, 300));
    // Nothing is charged twice, and nothing is lost.
    let charged: u64 = report.lines.iter().filter_map(|line| line.charged_ns).sum();
    assert_eq!(charged + report.no_line.total_ns, aggregates.device_stacks.total_ns());
    let calls: u64 = report.lines.iter().map(|line| line.charged_calls).sum();
    assert_eq!(calls + report.no_line.calls, report.counts.executed_operations);
    let host: u64 = report.lines.iter().map(|line| line.charged_host_calls).sum();
    assert_eq!(host + report.no_line.host_calls, report.counts.host_calls);
}

#[test]
fn launches_of_lines_add_up_to_those_of_kernels() {
    let (totals, aggregates) = stacked(false);
    let report = Report::new(&totals, &aggregates);
    let of = |line: u32| {
        let found = report.lines.iter().find(|report| report.location.line == Some(line));
        found.and_then(|line| line.launches)
    };
    // The line of user code answers for what a library's lines launched.
    let step = of(22).unwrap();
    assert_eq!((step.calls, step.shorter_calls, step.queued_calls), (2_400, 1_200, 0));
    assert_eq!((step.api_mean_ns, step.api_max_ns, of(125)), (2_900.0, 2_900, None));
    // Kernels without times are left out, and lines that launch nothing have no such figures.
    assert_eq!((of(62).unwrap().calls, of(8)), (150, None));
    let sums = |launches: &mut dyn Iterator<Item = Option<LaunchesReport>>| {
        launches.flatten().fold((0, 0, 0), |sum, of| {
            let total_ns = of.total_mean_ns * of.calls as f64;
            (sum.0 + of.calls, sum.1 + of.shorter_calls, sum.2 + total_ns.round() as u64)
        })
    };
    let mut lines = report.lines.iter().map(|line| line.launches).chain([report.no_line.launches]);
    let of_kernels = sums(&mut report.kernels.iter().map(|kernel| kernel.launches));
    let of_lines = sums(&mut lines);
    assert_eq!((of_lines.0, of_lines.1), (of_kernels.0, of_kernels.1));
    // Means are rounded to a tenth of a nanosecond.
    assert!(of_lines.2.abs_diff(of_kernels.2) < 1_000, "{of_lines:?} {of_kernels:?}");

    let names = ["line_exec_sum".to_owned(), "cuda_kern_exec_sum".to_owned()];
    let tables = named::tables(&report, &names);
    let count = |table: &named::NamedTable| -> u64 {
        let counts = table.rows.iter().map(|row| if let named::Cell::Count(n) = row[0] { n } else { 0 });
        counts.sum()
    };
    assert_eq!((count(&tables[0]), count(&tables[1])), (of_kernels.0, of_kernels.0));
    let first = tables[0].rows[0].last().unwrap();
    assert_eq!(*first, named::Cell::Text("train.py:22 train_step".to_owned()));
}

#[test]
fn lines_without_device_times_are_sorted_by_host_time() {
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    tape.notice(1, definition::rung::HOOKS, "no device times");
    for (stack, host_ns) in [(110, 0), (111, 7_000_000), (0, 3_000)] {
        tape.at(stack);
        tape.launch(40, 256, None);
        tape.wait(host_ns);
    }
    let (totals, aggregates) = tape.play(Counters::default());
    let report = Report::new(&totals, &aggregates);
    assert_eq!(report.lines[0].location.text(), "train.py:24 train_step");
    assert_eq!((report.lines[0].charged_calls, report.lines[0].charged_ns), (1, None));
    let text = report.to_text(&TextOptions::default());
    let at = text.find("Where (no device times)").unwrap();
    golden("report/tests/stacked-hooks.txt", &text[at..]);
}

#[test]
fn summary_equals_its_golden_file() {
    let (totals, aggregates) = training(false);
    let report = Report::new(&totals, &aggregates);
    for (name, width, verbose) in
        [("training-60", 60, false), ("training", 80, false), ("training-verbose", 100, true)]
    {
        let text = report.to_text(&TextOptions { width, verbose, ..TextOptions::default() });
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        assert!(text.lines().count() <= 50, "{text}");
        golden(&format!("report/tests/{name}.txt"), &text);
    }
}

#[test]
fn summary_without_verbose_has_no_jargon() {
    let mut tape = Tape::new(false);
    for _ in 0..3 {
        tape.launch(20, 256, Some(5_000));
    }
    tape.wait(1_000);
    let mut counters = Counters { sampled_hooks: 3, sampled_ticks: 3_000, ..Counters::default() };
    counters.values[Counter::RecordLagMaxNs as usize] = 48_900_000;
    let (totals, aggregates) = tape.play(counters);
    let report = Report::new(&totals, &aggregates);
    let jargon = |verbose| {
        let text = report.to_text(&TextOptions { verbose, ..TextOptions::default() });
        let found = |words: &&str| text.contains(*words);
        ["Lag  ", "  occ", "too few calls to tell"].iter().filter(|words| found(words)).count()
    };
    assert_eq!((jargon(false), jargon(true)), (0, 3), "{}", report.to_text(&TextOptions::default()));
    // The JSON has all of it in any case.
    let json = report.to_json();
    assert!(json.contains("\"record_lag_max_ns\": 48900000") && json.contains("\"occupancy\""), "{json}");
}

/// Found by fuzzing: the sum of two processes' counters overflows.
#[test]
fn counters_do_not_overflow() {
    let mut model = Model::new(Aggregates::default());
    model.consume(&Batch::SessionBegin(SessionBegin::default()));
    for process in 0..2 {
        model.consume(&Batch::ProcessBegin(ProcessBegin { process, ..ProcessBegin::default() }));
        let values = [u64::MAX; Counter::COUNT];
        let (sampled_hooks, sampled_ticks) = (u64::MAX, u64::MAX);
        let all = Counters { process, values, sampled_hooks, sampled_ticks, ..Counters::default() };
        model.consume(&Batch::Counters(all));
    }
    let (totals, aggregates) = model.finish();
    let report = Report::new(&totals, &aggregates);
    assert_eq!((report.cost.sampled_hooks, report.dropped["no_ring"]), (u64::MAX, u64::MAX));
    assert!(!report.complete, "what was lost is missing");
    report.to_text(&TextOptions::default());
}

#[test]
fn summary_keeps_to_the_width() {
    let (totals, aggregates) = training(true);
    let mut report = Report::new(&totals, &aggregates);
    report.command.push("--a-long-option=value".repeat(30));
    report.dropped = (0..30).map(|at| (format!("reason_{at}"), u64::MAX)).collect();
    report.devices[0].name = "A device with quite a long name ".repeat(5);
    for width in 60..=160 {
        let text = report.to_text(&TextOptions { width, ..TextOptions::default() });
        let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(longest.chars().count() <= width, "{width}: {longest}");
    }
}

#[test]
fn line_table_keeps_to_the_width() {
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    tape.code(
        120,
        "größe.".repeat(40).as_bytes(),
        b"a_file_with_a_very_long_name_indeed_for_a_module_of_a_library.py",
        1_234_567,
    );
    tape.stack(121, &[(120, 3)]);
    for stack in [110, 121, 113, 0] {
        tape.at(stack);
        tape.launch(20, 512, Some(12_345_678));
        tape.launch(23, 512, Some(1));
    }
    let (totals, aggregates) = tape.play(Counters::default());
    let report = Report::new(&totals, &aggregates);
    for width in 60..=160 {
        let text = report.to_text(&TextOptions { width, ..TextOptions::default() });
        let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(longest.chars().count() <= width, "{width}: {longest}");
        assert_eq!(text.contains("mostly"), width >= 78, "{width}: {text}");
    }
}

#[test]
fn colour_changes_nothing_but_colour() {
    let (totals, aggregates) = stacked(true);
    let report = Report::new(&totals, &aggregates);
    let plain = report.to_text(&TextOptions::default());
    let coloured = report.to_text(&TextOptions { color: true, ..TextOptions::default() });
    let mut stripped = String::new();
    for (at, piece) in coloured.split('\x1b').enumerate() {
        stripped += if at == 0 { piece } else { piece.split_once('m').unwrap().1 };
    }
    let lines = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(&stripped), lines(&plain));
    assert!(plain.lines().next().unwrap().contains("simulated"));
}

#[test]
fn json_has_the_promised_fields() {
    let (totals, aggregates) = training(true);
    let report = Report::new(&totals, &aggregates);
    let text = report.to_json();
    golden("report/tests/training.json", &text);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    for field in [
        "schema",
        "version",
        "simulated",
        "wall_ns",
        "kernels",
        "transfers",
        "memsets",
        "launches",
        "captured_launches",
        "graph_launches",
        "graph_node_calls",
        "device_only",
        "dropped",
        "device_time_coverage",
        "devices",
        "processes",
        "calls",
        "cost",
        "notices",
    ] {
        assert!(json.get(field).is_some(), "{field}");
    }
    for field in [
        "name",
        "full_name",
        "calls",
        "total_ns",
        "min_ns",
        "mean_ns",
        "median_ns",
        "p99_ns",
        "max_ns",
        "configs",
    ] {
        assert!(json["kernels"][0].get(field).is_some(), "kernel's {field}");
    }
    for field in ["grid", "block", "shared_bytes", "registers", "occupancy", "calls"] {
        assert!(json["kernels"][0]["configs"][0].get(field).is_some(), "configuration's {field}");
    }
    for field in ["direction", "calls", "bytes", "total_ns", "bandwidth_mbps"] {
        assert!(json["transfers"][0].get(field).is_some(), "transfer's {field}");
    }
    assert_eq!(json["devices"][0]["uuid"], "GPU-01020304-0506-0708-090a-0b0c0d0e0f10");
    assert_eq!(json["launches"], 300 * 9 + 20);
    assert_eq!(json["captured_launches"], 1);
    assert_eq!(json["device_time_coverage"], 1.0);
}

#[test]
fn json_fields_are_documented() {
    let (mut totals, aggregates) = training(false);
    let damage = Damage { offset: 1, blocks_read: 0, reason: DamageReason::Missing };
    totals.damages.push(("a.gputrace".into(), damage));
    let json: serde_json::Value = serde_json::from_str(&Report::new(&totals, &aggregates).to_json()).unwrap();
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/report-json.md"));
    let page = std::fs::read_to_string(path).unwrap();
    let mut missing = Vec::new();
    let failing = failing(ProcessEnd::Exit, Some(700)).to_json();
    let failing: serde_json::Value = serde_json::from_str(&failing).unwrap();
    let (totals, aggregates) = stacked(false);
    let stacked = serde_json::to_value(Report::new(&totals, &aggregates)).unwrap();
    let mut open = vec![&json, &failing, &stacked];
    while let Some(value) = open.pop() {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, inner) in fields {
                    if !page.contains(&format!("`{name}`")) {
                        missing.push(name.clone());
                    }
                    open.push(inner);
                }
            }
            serde_json::Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    assert!(missing.is_empty(), "not in docs/report-json.md: {missing:?}");
}

#[test]
fn equal_short_names_get_their_namespace() {
    let (totals, aggregates) = training(false);
    let report = Report::new(&totals, &aggregates);
    let mut names: Vec<_> = report.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(
        names[2..],
        [
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>",
            "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>> [foo]"
        ]
    );
}

#[test]
fn report_without_device_times_counts_calls_and_has_null_times() {
    let mut tape = Tape::new(false);
    tape.notice(
        1,
        definition::rung::HOOKS,
        "no device times: libcupti was not found; counts and host times are exact",
    );
    for _ in 0..50 {
        tape.launch(20, 256, None);
        tape.launch(22, 128, None);
    }
    tape.launch(22, 128, None);
    tape.wait(1_000_000);
    let (totals, aggregates) = tape.play(Counters::default());
    let report = Report::new(&totals, &aggregates);
    assert_eq!(report.device_times, DeviceTimes::None);
    assert_eq!(report.device_time_coverage, 0.0);
    assert_eq!(report.kernels[0].calls, 51);
    assert_eq!(report.kernels[0].spread.total_ns, None);
    // 32 registers by the function's own attributes.
    assert_eq!(report.kernels[0].configs[0].registers, Some(32));
    assert_eq!(report.kernels[0].occupancy, Some(1.0));
    assert_eq!(report.devices[0].busy_ns, None);
    assert_eq!(report.devices[0].idle_at_most_ns, None);
    golden("report/tests/hooks.txt", &report.to_text(&TextOptions::default()));
}

#[test]
fn session_without_cuda_says_so() {
    let (totals, aggregates) = Tape::new(false).play(Counters::default());
    let report = Report::new(&totals, &aggregates);
    let text = report.to_text(&TextOptions::default());
    assert!(text.contains("The CUDA driver was loaded, but no launch"), "{text}");
    let empty = Report::new(&Totals::default(), &Aggregates::default()).to_text(&TextOptions::default());
    assert!(empty.contains("No CUDA call was seen") && empty.lines().count() < 6, "{empty}");
}

#[test]
fn hostile_text_does_not_reach_the_terminal() {
    let mut tape = Tape::new(false);
    tape.notice(1, 0, "bad \u{1b}[2J\nnews");
    let (mut totals, aggregates) = tape.play(Counters::default());
    totals.sessions[0].begin.command = vec!["evil\u{1b}[31m\r\n".into()];
    let text = Report::new(&totals, &aggregates).to_text(&TextOptions::default());
    assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text}");
}
