//! What tools of this kind were caught by (docs/TRAPS.md), where no other module has it already.

use std::fs;
use std::process::{Command, Stdio};

use crate::harness::folder::Folder;
use crate::harness::life::same_as_untraced;
use crate::harness::needs;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{calls, count, dropped, run, run_command};

/// A program that was built before glibc 2.34 binds to another version of the name than a later
/// one, and both may be in a process.
#[test]
fn versions_of_dlsym_lead_through_our_hooks() {
    let lives = same_as_untraced("trap_versions", &[]);
    assert_eq!(lives.untraced.stdout, "missing 0\n");
    lives.launches(4).each(|report, how| assert_eq!(count(report, "device_only"), 0, "{how}: {report:#}"));
}

/// As in a container: the program's process and thread ids mean nothing to the collector.
#[test]
fn program_in_a_namespace_of_process_ids_is_recorded() {
    let test = "program_in_a_namespace_of_process_ids_is_recorded";
    let ways: [&[&str]; 2] = [&["--pid", "--fork"], &["--user", "--map-root-user", "--pid", "--fork"]];
    let works = |options: &&&[&str]| {
        let mut command = Command::new("unshare");
        command.args(**options).arg("true").stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let Some(options) = ways.iter().find(works) else {
        return needs::skipped(test, "unshare --pid does not work here");
    };
    let unshare = options.iter().fold(run_command("unshare"), |run, option| run.arg(option));
    let traced = unshare.arg(compiled("basic", Link::Driver)).succeed();
    let report = traced.report();
    assert_eq!((count(&report, "launches"), dropped(&report)), (10, 0), "{report:#}");
    assert_eq!(report["device_time_coverage"], 1.0, "{report:#}");
    assert_eq!(report["complete"], true, "{report:#}");
}

/// A thread of the tracer that does not block a signal gets the program's, sooner or later.
#[test]
fn threads_of_ours_take_no_signal_of_the_program_s() {
    let lives = same_as_untraced("trap_signal", &[]);
    assert_eq!(lives.untraced.stdout, "signals 100\n");
    lives.launches(1);
}

/// An event or a synchronisation of ours would become a node, or would spoil the capture.
#[test]
fn captured_graph_holds_the_program_s_nodes_alone() {
    let lives = same_as_untraced("trap_capture", &[]);
    assert_eq!(lives.untraced.stdout, "capturing 1 nodes 6\n");
    lives.launches(0).each(|report, how| {
        assert_eq!(count(report, "captured_launches"), 5, "{how}: {report:#}");
        assert_eq!(count(report, "graph_launches"), 10, "{how}: {report:#}");
        assert_eq!(calls(report, "first_kernel"), 40, "{how}: {report:#}");
        assert_eq!(calls(report, "second_kernel"), 10, "{how}: {report:#}");
    });
}

/// A forced flush returns a running kernel without an end and never again. The service thread
/// flushes a dozen times while this one runs.
#[test]
fn kernel_that_runs_across_many_flushes_keeps_its_times() {
    let report = run("trap_long_kernel").succeed().report();
    assert_eq!(report["device_time_coverage"], 1.0, "{report:#}");
    assert_eq!(count(&report, "invalid_timing"), 0, "{report:#}");
    let kernels = report["kernels"].as_array().unwrap();
    let long = kernels.iter().find(|kernel| kernel["name"] == "long_kernel").unwrap();
    assert_eq!(long["total_ns"].as_u64(), Some(700_000_000), "{report:#}");
}

/// 35 is CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, 39 says that there is a subscriber already.
#[test]
fn cupti_that_refuses_us_costs_device_times_alone() {
    let stub = compiled("trap_cupti_stub", Link::Shared);
    for (error, said) in [("35", "INSUFFICIENT_PRIVILEGES"), ("39", "uses CUPTI already")] {
        let traced = run("basic").env("GPUTRACE_CUPTI", &stub).env("STUB_SUBSCRIBE", error).succeed();
        let report = traced.report();
        assert_eq!((count(&report, "launches"), dropped(&report)), (10, 0), "{report:#}");
        assert_eq!(report["device_time_coverage"], 0.0, "{report:#}");
        assert!(traced.ended.stderr.contains(said), "{}", traced.ended.stderr);
        assert!(traced.read("summary.txt").contains(said), "{}", traced.read("summary.txt"));
    }
}

/// NVIDIA's libcupti, which PyTorch brings along, asks a simulated driver for what it does not have until the
/// program's stack is full.
#[test]
fn cupti_that_the_program_brings_is_not_used_on_the_simulated_device() {
    let folder = Folder::new();
    let brought = folder.join("libcupti.so.13");
    fs::copy(compiled("trap_cupti_stub", Link::Shared), &brought).unwrap();
    let traced = run("basic").env("LD_PRELOAD", &brought).env("STUB_SUBSCRIBE", "35").succeed();
    let report = traced.report();
    assert_eq!((count(&report, "launches"), dropped(&report)), (10, 0), "{report:#}");
    assert_eq!(report["device_time_coverage"], 1.0, "{report:#}");
}

/// CUPTI can take everything that is asked of it and be dead all the same.
#[test]
fn cupti_that_never_delivers_is_reported() {
    let stub = compiled("trap_cupti_stub", Link::Shared);
    let traced = run("basic").env("GPUTRACE_CUPTI", &stub).succeed();
    let report = traced.report();
    assert_eq!((count(&report, "launches"), calls(&report, "first_kernel")), (10, 7), "{report:#}");
    assert_eq!(report["device_time_coverage"], 0.0, "{report:#}");
    let warnings = report["notices"].as_array().unwrap();
    let said = warnings.iter().any(|notice| {
        notice["severity"] == "warning" && notice["text"].as_str().unwrap().contains("device time")
    });
    assert!(said, "{report:#}");
}
