//! `LD_PRELOAD=$(gputrace lib) program`, and nobody notices but by the outputs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::eventually;
use crate::harness::tool::{self, bare, bare_command, calls, count, run};

#[test]
fn outputs_are_written_when_the_program_has_ended() {
    let traced = bare("basic").succeed();
    let report = traced.report();
    assert_eq!(count(&report, "launches"), 10);
    assert_eq!(calls(&report, "first_kernel"), 7);
    assert!(traced.ended.stderr.contains("first_kernel"), "no summary: {}", traced.ended.stderr);
}

#[test]
fn wait_sees_no_child_of_ours() {
    bare("waits_for_children").succeed();
}

#[test]
fn output_can_be_captured() {
    // The harness reads both pipes to their ends: a collector that held one would hang here.
    let program = compiled("basic", Link::Driver);
    let traced =
        bare_command("sh").arg("-c").arg(format!("out=$({} 2>&1); echo done", program.display())).go();
    assert_eq!(traced.expect_code(0).ended.stdout, "done\n");
}

#[test]
fn outputs_are_written_by_every_kind_of_end() {
    for how in ["return", "exit", "_exit", "quick_exit", "thread"] {
        let traced = bare("ending").arg(how).go().expect_code(5);
        assert_eq!(count(&traced.report(), "launches"), 3, "{how}");
        assert!(traced.output.join("summary.txt").is_file(), "{how}");
    }
}

#[test]
fn exec_leaves_the_first_program_s_outputs() {
    let traced = bare("exec_after").arg("/bin/echo").arg("gone").go().expect_code(0);
    assert_eq!(traced.ended.stdout, "gone\n");
    // They are written beside the next program, and nobody waits for them.
    eventually("the outputs are there", || traced.output.join("summary.txt").is_file().then_some(()));
    assert_eq!(count(&traced.report(), "launches"), 2);
}

#[test]
fn default_folder_is_used_without_an_output_variable() {
    let folder = Folder::new();
    let mut command = Command::new(compiled("basic", Link::Driver));
    tool::clean(&mut command);
    command.current_dir(folder.path()).env("LD_PRELOAD", tool::library());
    finish(command.env("LD_LIBRARY_PATH", tool::simulated_folder())).expect_code(0);
    let mut found = std::fs::read_dir(folder.join("gputrace-out")).unwrap();
    let made = found.next().unwrap().unwrap();
    assert!(made.file_name().to_string_lossy().starts_with("basic-"), "{made:?}");
    assert!(made.path().join("trace.gputrace").is_file());
}

#[test]
fn auto_collect_and_run_agree() {
    let (a, b) = (bare("graph").succeed().report(), run("graph").succeed().report());
    for name in ["launches", "captured_launches", "graph_launches", "device_only"] {
        assert_eq!(a[name], b[name], "{name}");
    }
    // The times of launches are the host's, which differ from run to run.
    let kernels = |report: &Value| {
        let mut kernels = report["kernels"].clone();
        for kernel in kernels.as_array_mut().unwrap() {
            kernel.as_object_mut().unwrap().remove("launches");
        }
        kernels
    };
    assert_eq!(kernels(&a), kernels(&b));
}

#[test]
fn folder_that_cannot_be_made_is_reported_and_harms_nobody() {
    let traced = bare("basic").env("GPUTRACE_OUT", "/proc/nowhere").go().expect_code(0);
    let expected = "gputrace: cannot write to the output folder /proc/nowhere: ";
    assert!(traced.ended.stderr.starts_with(expected), "{}", traced.ended.stderr);
}

/// A limit on the collector's file sizes stands in for a full disk.
#[test]
fn full_disk_is_reported_like_other_errors_and_leaves_nothing() {
    let folder = Folder::new();
    let collector = folder.join("collector");
    let script =
        format!("#!/bin/sh\ntrap '' XFSZ\nulimit -f 0\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_gputrace"));
    fs::write(&collector, script).unwrap();
    fs::set_permissions(&collector, fs::Permissions::from_mode(0o755)).unwrap();
    let traced = bare("basic").env("GPUTRACE_COLLECTOR", &collector).go().expect_code(0);
    let trace = traced.trace();
    let expected =
        format!("gputrace: cannot create the trace file {}: file too large\n  hint: ", trace.display());
    assert!(traced.ended.stderr.starts_with(&expected), "{}", traced.ended.stderr);
    assert!(traced.ended.stderr.contains("GPUTRACE_OUT"), "{}", traced.ended.stderr);
    assert!(!traced.output.exists());
}

#[test]
fn processes_that_share_a_folder_do_not_overwrite_each_other() {
    let program = compiled("basic", Link::Driver);
    let traced = bare_command("sh").arg("-c").arg(format!("{0}; {0}", program.display())).go().expect_code(0);
    let mut inside: Vec<_> =
        std::fs::read_dir(&traced.output).unwrap().map(|entry| entry.unwrap().path()).collect();
    inside.retain(|path| path.is_dir());
    assert_eq!(inside.len(), 1, "{inside:?}");
    let report = tool::report(&[traced.trace(), inside[0].join("trace.gputrace")]);
    assert_eq!(count(&report, "launches"), 20);
}

#[test]
fn unknown_variables_are_warned_about() {
    let traced = bare("basic").env("GPUTRACE_OUTPUT", "x").succeed();
    let expected = "GPUTRACE_OUTPUT is not a variable of gputrace; did you mean GPUTRACE_OUT?";
    assert!(traced.ended.stderr.contains(expected), "{}", traced.ended.stderr);
}

#[test]
fn switched_off_library_records_nothing() {
    let traced = bare("basic").env("GPUTRACE", "off").go().expect_code(0);
    assert_eq!(traced.ended.stderr, "");
    assert!(!traced.output.exists());
}

#[test]
fn missing_collector_is_reported_and_harms_nobody() {
    let traced = bare("basic").env("GPUTRACE_COLLECTOR", "/nonexistent").go().expect_code(0);
    assert!(traced.ended.stderr.contains("collector"), "{}", traced.ended.stderr);
    assert!(!traced.output.exists());
}
