//! The report of a session built by hand, as text and as JSON, beside its golden files; and the
//! promises that every report keeps.

use std::path::PathBuf;

use gputrace_wire::counter::Counter;
use gputrace_wire::definition;

use crate::aggregate::Aggregates;
use crate::batch::{Batch, Counters, ProcessBegin, ProcessEnd, SessionBegin};
use crate::model::{Model, Totals};
use crate::report::tape::{Tape, python_stacks, stacked, training};
use crate::report::{DeviceTimes, LineReport, Report, TextOptions};
use crate::trace_file::{Damage, DamageReason};

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
fn lines_are_charged_with_what_they_asked_for() {
    let (totals, aggregates) = stacked(false);
    let report = Report::new(&totals, &aggregates);
    let text = report.to_text(&TextOptions::default());
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    golden("report/tests/stacked.txt", &text);
    golden("report/tests/stacked.json", &report.to_json());

    let of = |line: u32, function: &str| {
        let found =
            |report: &&LineReport| report.place.line == Some(line) && report.place.function == function;
        report.lines.iter().find(found).unwrap()
    };
    // All of its operations are under the line of the module that makes the steps.
    let module = of(40, "<module>");
    assert_eq!((module.calls, module.self_calls, module.charged_calls), (300 * 9, 0, 0));
    // A library's line launches, and the program's own line that called the library is charged.
    let (forward, step) = (of(125, "Linear.forward"), of(22, "train_step"));
    assert!(!forward.own && step.own);
    assert_eq!((forward.calls, forward.self_calls, forward.charged_calls), (1_200, 1_200, 0));
    assert_eq!((step.calls, step.self_calls, step.charged_calls), (2_400, 0, 2_400));
    assert_eq!(step.total_ns, Some(forward.total_ns.unwrap() + of(31, "Linear.forward").total_ns.unwrap()));
    // A function that calls itself has its operations once, those without times too.
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
fn without_device_times_lines_are_by_host_time() {
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
    assert_eq!(report.lines[0].place.text(), "train.py:24 train_step");
    assert_eq!((report.lines[0].charged_calls, report.lines[0].charged_ns), (1, None));
    let text = report.to_text(&TextOptions::default());
    let at = text.find("Where (no device times)").unwrap();
    golden("report/tests/stacked-hooks.txt", &text[at..]);
}

#[test]
fn the_summary_reads_as_agreed() {
    let (totals, aggregates) = training(false);
    let report = Report::new(&totals, &aggregates);
    let text = report.to_text(&TextOptions::default());
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.lines().count() <= 40, "{text}");
    golden("report/tests/training.txt", &text);
}

#[test]
fn the_summary_fits_an_ordinary_terminal() {
    let (totals, aggregates) = training(true);
    let text =
        Report::new(&totals, &aggregates).to_text(&TextOptions { width: 80, ..TextOptions::default() });
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    golden("report/tests/training-80.txt", &text);
}

/// A kernel that faults with others behind it, after some steps.
fn failing(end: ProcessEnd, status: Option<u16>) -> Report {
    failing_in(Tape::new(false), [0; 3], end, status)
}

fn failing_in(mut tape: Tape, stacks: [u32; 3], end: ProcessEnd, status: Option<u16>) -> Report {
    for _ in 0..5 {
        tape.launch(20, 512, Some(5_000));
        tape.wait(20_000);
    }
    tape.at(stacks[0]);
    tape.launch(22, 32, None);
    tape.at(stacks[1]);
    tape.launch(20, 512, None);
    tape.launch(20, 512, None);
    tape.at(stacks[2]);
    if let Some(status) = status {
        tape.fail(status);
        tape.fail(status);
    }
    let (totals, aggregates) = tape.end(end, Counters::default());
    Report::new(&totals, &aggregates)
}

#[test]
fn a_failure_is_told_with_what_was_in_flight() {
    let report = failing(ProcessEnd::Exit, Some(700));
    let text = report.to_text(&TextOptions::default());
    golden("report/tests/failure.txt", &text);
    golden("report/tests/failure.json", &report.to_json());
    let killed = failing(ProcessEnd::Vanished, None).to_text(&TextOptions::default());
    assert!(
        killed.contains("In flight  3 operations of process 4242, which vanished, newest first\n"),
        "{killed}"
    );
    assert!(!killed.contains("Failure"), "{killed}");
    let passing = failing(ProcessEnd::Exit, Some(2));
    assert!(passing.failures.is_empty() && passing.in_flight.is_empty());
}

#[test]
fn a_failure_is_told_with_the_lines_that_led_to_it() {
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    let report = failing_in(tape, [110, 114, 111], ProcessEnd::Exit, Some(700));
    golden("report/tests/stacked-failure.txt", &report.to_text(&TextOptions::default()));
    let stack = &report.failures[0].stack;
    assert_eq!(stack[0].text(), "adam.py:217 Adam.step");
    assert_eq!(stack[0].path.as_deref(), Some("/opt/venv/lib/python3.12/site-packages/torch/optim/adam.py"));
    assert_eq!(report.in_flight[0].newest_first[0].stack[3].function, "[truncated]");
}

#[test]
fn a_long_queue_is_told_by_its_ends() {
    let mut tape = Tape::new(false);
    tape.launch(22, 32, None);
    for _ in 0..5_000 {
        tape.launch(20, 512, None);
    }
    tape.fail(719);
    let (totals, aggregates) = tape.play(Counters::default());
    let text = Report::new(&totals, &aggregates).to_text(&TextOptions::default());
    let line = "×12, 4,985 more, vectorized_elementwise_kernel";
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(line) && words.contains("×3, triton_red_fused_native_layer_norm_3"), "{text}");
}

/// Found by fuzzing: counters of two processes that add up to more than a number holds.
#[test]
fn nonsense_counters_do_not_overflow() {
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
    report.to_text(&TextOptions::default());
}

fn missing_times(end: ProcessEnd) -> Report {
    let mut tape = Tape::new(false);
    tape.launch(20, 256, Some(5_000));
    tape.launch(20, 256, None);
    tape.launch(20, 256, None);
    let (mut totals, aggregates) = tape.play(Counters::default());
    let process = &mut totals.processes[0];
    process.end = process.end.map(|(_, at_ns)| (end, at_ns));
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
        let said = format!("device times are missing for 2 of 3 operations: {why}");
        assert_eq!(report.notices[0].text, said);
        let text = report.to_text(&TextOptions::default());
        assert!(text.contains("Lost       device times of 2 operations\n"), "{text}");
    }
}

#[test]
fn records_that_were_lost_are_the_reason_that_is_given() {
    let mut tape = Tape::new(false);
    tape.launch(20, 256, None);
    let mut counters = Counters::default();
    counters.values[Counter::BuffersExhausted as usize] = 3;
    let (totals, aggregates) = tape.play(counters);
    let said = "device times are missing for 1 of 1 operation: their records came too late or were lost \
                (buffers_exhausted 3)";
    assert_eq!(Report::new(&totals, &aggregates).notices[0].text, said);
}

#[test]
fn a_damaged_trace_is_not_reported_as_whole() {
    let damage = |reason| vec![("a.gputrace".into(), Damage { offset: 1_992, blocks_read: 5, reason })];
    let (mut totals, aggregates) = Tape::new(false).play(Counters::default());
    totals.damages = damage(DamageReason::Truncated);
    let report = Report::new(&totals, &aggregates);
    assert_eq!((report.damages[0].offset, report.damages[0].read_whole), (1_992, false));
    let text = report.to_text(&TextOptions::default());
    assert!(text.contains("Trace      read in part: the file ends within a block (at byte 1,992)"), "{text}");
    assert!(text.contains("Lost       all from byte 1,992 of the trace on"), "{text}");
    assert!(!text.contains("was seen"), "{text}");

    let (mut totals, aggregates) = training(false);
    totals.damages = damage(DamageReason::Truncated);
    let report = Report::new(&totals, &aggregates);
    assert_eq!(report.devices[0].idle_ns, None, "what is missing may have kept it busy");
    assert!(!report.to_text(&TextOptions::default()).contains("nothing"));

    totals.damages = damage(DamageReason::Trailing);
    let report = Report::new(&totals, &aggregates);
    assert!(report.damages[0].read_whole && report.devices[0].idle_ns.is_some());
    let text = report.to_text(&TextOptions::default());
    assert!(text.contains("end of the trace, all of which was read (at byte 1,992)"), "{text}");
    assert!(text.contains("Lost       nothing") && !text.contains("in part"), "{text}");
}

#[test]
fn every_page_keeps_to_its_width() {
    let (totals, aggregates) = training(true);
    let mut report = Report::new(&totals, &aggregates);
    report.command.push("--a-long-option=value".repeat(30));
    report.dropped = (0..30).map(|at| (format!("reason_{at}"), u64::MAX)).collect();
    report.devices[0].name = "A device with quite a long name ".repeat(5);
    for width in 80..=160 {
        let text = report.to_text(&TextOptions { width, ..TextOptions::default() });
        let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(longest.chars().count() <= width, "{width}: {longest}");
    }
}

#[test]
fn the_table_of_lines_keeps_to_the_width() {
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
    for width in 80..=160 {
        let text = report.to_text(&TextOptions { width, ..TextOptions::default() });
        let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(longest.chars().count() <= width, "{width}: {longest}");
        assert_eq!(text.contains("mostly"), width >= 95, "{text}");
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
fn the_json_has_the_promised_fields() {
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
fn every_field_is_documented() {
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
fn equal_short_names_are_told_apart() {
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
fn without_device_times_calls_are_counted_and_times_are_null() {
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
fn idle_time_is_not_claimed_where_operations_are_not_known() {
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

#[test]
fn processes_that_are_not_kept_are_in_all_sums() {
    let [kept, unkept] = [9, 0].map(|processes_max| {
        let mut tape = Tape::new(false);
        tape.launch(20, 256, Some(5_000));
        tape.launch(20, 256, Some(5_000));
        tape.wait(9_000);
        tape.refuse(2);
        let mut counters = Counters { sampled_hooks: 2, sampled_ticks: 100, ..Counters::default() };
        counters.values[Counter::RecordsDelivered as usize] = 2;
        counters.values[Counter::RecordTicks as usize] = 700;
        counters.values[Counter::RecordLagMaxNs as usize] = 30;
        let model = Model::keeping(Aggregates::default(), processes_max);
        let (totals, aggregates) = tape.end_in(model, ProcessEnd::Exit, counters);
        Report::new(&totals, &aggregates)
    });
    assert_eq!((kept.processes.len(), unkept.processes.len()), (1, 0));
    assert_eq!((kept.dropped.len(), unkept.dropped["processes_not_kept"]), (0, 1));
    assert_eq!(unkept.counts, kept.counts);
    assert_eq!(unkept.cost, kept.cost);
    assert_eq!((kept.cost.records, kept.cost.sampled_hooks), (2, 2));
    // No record was lost.
    assert!(kept.devices[0].idle_ns.is_some());
    assert_eq!(unkept.devices[0].idle_ns, kept.devices[0].idle_ns);
    // A call that failed is in the list or counted as left out.
    assert_eq!((kept.errors.calls, kept.errors.left_out, kept.errors.list.len()), (1, 0, 1));
    assert_eq!((unkept.errors.calls, unkept.errors.left_out, unkept.errors.list.len()), (1, 1, 0));
    let text = unkept.to_text(&TextOptions::default());
    assert!(text.contains(", 1 process"), "{text}");
}

#[test]
fn missing_times_of_processes_that_are_not_kept_have_a_reason() {
    let [kept, unkept] = [9, 0].map(|processes_max| {
        let mut tape = Tape::new(false);
        tape.launch(20, 256, Some(5_000));
        tape.launch(20, 256, None);
        let model = Model::keeping(Aggregates::default(), processes_max);
        let (totals, aggregates) = tape.end_in(model, ProcessEnd::Exec, Counters::default());
        Report::new(&totals, &aggregates)
    });
    assert_eq!((kept.counts.untimed_operations, unkept.counts.untimed_operations), (1, 1));
    assert!(kept.notices[0].text.contains("process 4242 replaced itself"), "{:?}", kept.notices);
    assert_eq!(unkept.notices, kept.notices);
}

#[test]
fn a_session_without_cuda_says_so() {
    let (totals, aggregates) = Tape::new(false).play(Counters::default());
    let report = Report::new(&totals, &aggregates);
    let text = report.to_text(&TextOptions::default());
    assert!(text.contains("The CUDA driver was loaded, but no launch"), "{text}");
    let nobody = Report::new(&Totals::default(), &Aggregates::default());
    assert!(nobody.to_text(&TextOptions::default()).contains("No CUDA call was seen"));
    assert!(
        Report::new(&Totals::default(), &Aggregates::default())
            .to_text(&TextOptions::default())
            .lines()
            .count()
            < 6
    );
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
