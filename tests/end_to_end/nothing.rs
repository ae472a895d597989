//! Tracing nothing records nothing, and costs next to nothing.

use std::process::{Child, Command, Stdio};

use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{self, bare_command, count, dropped, run_command};

#[test]
fn program_without_cuda_makes_an_empty_trace() {
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
fn exit_code_is_the_program_s() {
    run_command("sh").arg("-c").arg("exit 42").go().expect_code(42);
}

#[test]
fn program_without_cuda_gets_no_thread_no_descriptor_and_no_output() {
    let program = compiled("nothing", Link::Nothing);
    let alone = finish(&mut Command::new(&program)).expect_code(0).stdout;
    let traced = bare_command(&program).go().expect_code(0);
    assert_eq!(traced.ended.stdout, alone);
    assert_eq!(traced.ended.stderr, "");
    assert!(!traced.output.exists());
    let under_run = run_command(&program).succeed();
    assert_eq!(under_run.ended.stdout, alone);
}

/// D6: a process without CUDA pays less than a millisecond for the library, in the median of
/// the processor time it takes. Elapsed time would count the other tests too.
#[test]
fn program_without_cuda_pays_less_than_a_millisecond() {
    let program = compiled("nothing", Link::Nothing);
    let once = |traced: bool| {
        let mut command = Command::new(&program);
        tool::clean(&mut command);
        if traced {
            command.env("LD_PRELOAD", tool::library());
        }
        processor_us(command.stdout(Stdio::null()).spawn().unwrap())
    };
    let (mut with, mut without): (Vec<_>, Vec<_>) = (0..100).map(|_| (once(true), once(false))).unzip();
    with.sort_unstable();
    without.sort_unstable();
    let added = with[50] - without[50];
    assert!(added < 1_000, "{added} µs added; with {with:?}, without {without:?}");
}

/// Waits for the process and returns the processor time that it took.
fn processor_us(child: Child) -> i64 {
    let mut status = 0;
    // SAFETY: a zeroed rusage is valid; wait4 fills it and the status, and reaps a child of ours
    // that `Child` is not asked about again.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        assert_eq!(
            libc::wait4(child.id().cast_signed(), &raw mut status, 0, &raw mut used),
            child.id().cast_signed()
        );
        used
    };
    assert_eq!(status, 0);
    [used.ru_utime, used.ru_stime].iter().map(|time| time.tv_sec * 1_000_000 + time.tv_usec).sum()
}
