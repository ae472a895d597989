//! Failed calls in the report: counted by line, with the arguments of the first.

use gputrace_wire::call::{Detail, Launch, Memory, memory, wait};
use gputrace_wire::cell::kind;
use gputrace_wire::definition::kind as def;

use crate::batch::Counters;
use crate::report::tests::tape::{Tape, python_stacks};
use crate::report::{ErrorReport, Report, TextOptions};

const ALLOC: u32 = 60;
const QUERY: u32 = 61;
const FREE: u32 = 62;

/// The report of a tape with Python stacks, filled by `fill`.
fn report(fill: impl FnOnce(&mut Tape)) -> Report {
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    for (id, name) in [(ALLOC, "cuMemAlloc_v2"), (QUERY, "cuStreamQuery"), (FREE, "cuMemFree_v2")] {
        tape.define(def::API, id, &[], name.as_bytes());
    }
    fill(&mut tape);
    let (totals, aggregates) = tape.play(Counters::default());
    Report::new(&totals, &aggregates)
}

fn alloc(tape: &mut Tape, bytes: u64, status: u16) {
    let detail = Detail::Memory(Memory { memory: memory::DEVICE, bytes, ..Memory::default() });
    tape.call(kind::ALLOC, ALLOC, 9_000, 0, 0, detail);
    tape.refuse(status);
}

fn words(report: &Report) -> String {
    report.to_text(&TextOptions::default()).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn by_call(report: &Report) -> Vec<(&str, &str, u64)> {
    let errors = report.errors.list.iter();
    let errors = errors.inspect(|error| assert_eq!(error.line.is_none(), error.stack.is_empty()));
    errors.map(|error| (error.failed.call.as_str(), error.failed.error, error.calls)).collect()
}

#[test]
fn failed_calls_are_counted_by_line() {
    let report = report(|tape| {
        // Two stacks with one line, and a stack with another.
        for stack in [110, 113, 110, 111] {
            tape.at(stack);
            alloc(tape, 1 << 30, 2);
        }
        tape.at(112);
        let shape = Launch { function: 50, grid: [1, 1, 1], block: [2048, 1, 1], ..Launch::default() };
        tape.call(kind::LAUNCH, 10, 900, 0, 0, Detail::Launch(shape));
        tape.refuse(1);
    });
    let alloc = ("cuMemAlloc_v2", "CUDA_ERROR_OUT_OF_MEMORY");
    let launch = ("cuLaunchKernel", "CUDA_ERROR_INVALID_VALUE");
    assert_eq!(by_call(&report), [(alloc.0, alloc.1, 3), (alloc.0, alloc.1, 1), (launch.0, launch.1, 1)]);
    let [first, second, third] = &report.errors.list[..] else { panic!("{:?}", report.errors) };
    let line = |error: &ErrorReport| error.line.as_ref().unwrap().text();
    assert_eq!(line(first), "train.py:22 train_step");
    assert_eq!(line(second), "train.py:24 train_step");
    assert_eq!((third.failed.category, third.arguments.block), ("launch", Some([2048, 1, 1])));
    assert_eq!(third.arguments.kernel.as_deref(), Some("gemm_bf16"));
    assert_eq!((report.errors.calls, report.errors.left_out), (5, 0));
    let text = words(&report);
    for expected in [
        "Failed cuMemAlloc_v2 returned CUDA_ERROR_OUT_OF_MEMORY 3 times at train.py:22 train_step (1.00 GiB device), first after",
        "The device has no such piece of memory left.",
        "(gemm_bf16, grid 1×1×1, block 2048×1×1), after",
        "A block of 2048 threads is too large: devices take 1024.",
    ] {
        assert!(text.contains(expected), "{expected:?}: {text}");
    }
}

#[test]
fn failed_allocation_that_succeeds_later_says_so() {
    let report = report(|tape| {
        alloc(tape, 2 << 30, 2);
        let free = Detail::Memory(Memory { memory: memory::DEVICE, ..Memory::default() });
        for _ in 0..3 {
            tape.call(kind::FREE, FREE, 1_000, 0, 0, free);
        }
        alloc(tape, 2 << 30, 0);
    });
    let [error] = &report.errors.list[..] else { panic!("{:?}", report.errors) };
    assert_eq!((error.calls, error.given_later, error.frees_before), (1, 1, 3));
    assert_eq!(report.errors.given_later, 1);
    assert!(words(&report).contains("; given when asked again"), "{}", words(&report));
}

#[test]
fn calls_after_a_lost_context_are_counted_and_not_listed_in_the_text() {
    let report = report(|tape| {
        tape.launch(20, 512, Some(5_000));
        for _ in 0..50 {
            tape.fail(700);
            alloc(tape, 64, 700);
        }
        // Another error has a cause of its own.
        alloc(tape, 64, 2);
    });
    assert_eq!((report.errors.calls, report.errors.after_context_lost), (101, 99));
    let of = |call: &str, code: u16| {
        let found = report
            .errors
            .list
            .iter()
            .find(|error| (error.failed.call.as_str(), error.failed.code) == (call, code))
            .unwrap();
        (found.calls, found.after_context_lost)
    };
    assert_eq!(of("cuStreamSynchronize", 700), (50, 49));
    assert_eq!(of("cuMemAlloc_v2", 700), (50, 50));
    assert_eq!(of("cuMemAlloc_v2", 2), (1, 0));
    let text = words(&report);
    assert!(text.contains("Failed cuMemAlloc_v2 returned CUDA_ERROR_OUT_OF_MEMORY"), "{text}");
    assert!(text.contains("99 calls because the context had been lost"), "{text}");
    assert_eq!(text.matches("CUDA_ERROR_ILLEGAL_ADDRESS").count(), 1, "{text}");
    assert!(text.contains("compute-sanitizer"), "{text}");
}

#[test]
fn queries_are_no_failures_and_are_counted_with_their_reason() {
    let report = report(|tape| {
        for _ in 0..7 {
            tape.call(kind::CALL, QUERY, 300, 0, 0, Detail::Wait { what: wait::STREAM, handle: 1 });
            tape.refuse(600);
        }
    });
    assert_eq!((report.errors.calls, report.errors.list.len()), (0, 0));
    let [answer] = &report.errors.answers[..] else { panic!("{:?}", report.errors) };
    assert_eq!(
        (answer.call.as_str(), answer.error, answer.calls),
        ("cuStreamQuery", "CUDA_ERROR_NOT_READY", 7)
    );
    assert!(!words(&report).contains("Failed"));
}

#[test]
fn failures_beyond_the_first_few_are_counted() {
    let report = report(|tape| {
        for stack in [110, 111, 112, 114, 115] {
            tape.at(stack);
            alloc(tape, 64, 2);
        }
    });
    assert_eq!(report.errors.list.len(), 5, "{:#?}", report.errors);
    assert!(words(&report).contains("and 2 more calls, in the JSON by line"), "{}", words(&report));
}
