//! Reports of programs that failed: operations in flight, and the program lines.

use super::golden;
use crate::batch::{Counters, ProcessEnd};
use crate::report::tests::tape::{Tape, python_stacks};
use crate::report::{Report, TextOptions};

/// After some steps, a kernel that faults, with others queued behind it.
pub(super) fn failing(end: ProcessEnd, status: Option<u16>) -> Report {
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
fn failure_is_shown_with_operations_in_flight() {
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
fn failure_is_shown_with_its_stack() {
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
fn long_queue_is_shown_by_its_ends() {
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
