//! Programs whose environment is cleared, and machines without /proc: traced all the same, or the cause is
//! named.

use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{clean, count, gputrace, library, report, run, run_command};

#[test]
fn lost_environment_leaves_a_program_in_its_session() {
    let traced = run("clears_environment").succeed();
    assert_eq!(traced.ended.stdout, "done\n");
    assert_eq!(count(&traced.report(), "launches"), 3, "{}", traced.ended.stderr);
    assert!(!traced.ended.stderr.contains("No CUDA call was seen"), "{}", traced.ended.stderr);
}

/// Without LD_PRELOAD nobody is there to trace it. Half a second is enough to be seen.
#[test]
fn lost_environment_of_another_program_is_named_as_the_cause() {
    let sleep = run("clears_environment").arg("/bin/sleep").arg("0.5").succeed();
    let stderr = &sleep.ended.stderr;
    let (_, causes) = stderr.split_once("gputrace: why there may be no CUDA call").expect(stderr);
    assert!(causes.contains(" (sleep) was started without LD_PRELOAD and GPUTRACE_SESSION: "), "{stderr}");
    assert!(causes.contains("gputrace doctor"), "{stderr}");
    for other in ["another user", "statically", "no CUDA driver"] {
        assert!(!causes.contains(other), "{other}: {stderr}");
    }
}

#[test]
fn lost_causes_are_not_made_up() {
    let nothing = run_command("true").succeed();
    let said = &nothing.ended.stderr;
    let hint = said.lines().rev().nth(1).unwrap();
    assert!(hint.contains("was CUDA used at all?") && hint.contains("gputrace doctor"), "{said}");
    let something = run("basic").succeed();
    assert!(!something.ended.stderr.contains("gputrace doctor"), "{}", something.ended.stderr);
}

/// The missing driver comes last.
#[test]
fn lost_drivers_are_named_as_the_cause() {
    let folder = Folder::new();
    let mut command = gputrace();
    command
        .args(["run", "-o"])
        .arg(folder.join("out"))
        .arg("--")
        .arg(compiled("ends_with_nine", Link::Nothing));
    let ended = finish(&mut command).expect_code(9);
    if !ended.stderr.contains("\n  - there is no CUDA driver: ") {
        needs::skipped("lost_drivers_are_named_as_the_cause", "there is a CUDA driver here");
    }
}

#[test]
fn lost_proc_leaves_run_as_it_is_and_is_reported_by_lib() {
    let folder = Folder::new();
    library();
    let shell = |script: &str| {
        let tool = gputrace();
        let mut command = Command::new("unshare");
        clean(&mut command);
        command.args(["-m", "sh", "-c", &format!("mount -t tmpfs tmpfs /proc && {script}"), "sh"]);
        finish(command.arg(tool.get_program()).arg(folder.join("out")).arg(compiled("basic", Link::Driver)))
    };
    let mounted = shell("true");
    if mounted.code() != Some(0) {
        let test = "lost_proc_leaves_run_as_it_is_and_is_reported_by_lib";
        return needs::skipped(test, &format!("no file system can be mounted: {}", mounted.stderr));
    }
    shell("exec \"$1\" run --simulate -o \"$2\" -- \"$3\"").expect_code(0);
    assert_eq!(count(&report(&[folder.join("out/trace.gputrace")]), "launches"), 10);
    let lib = shell("\"$1\" lib").expect_code(1);
    assert!(lib.stderr.contains("/proc is not mounted"), "{}", lib.stderr);
    assert!(!lib.stderr.contains("GPUTRACE_CACHE"), "{}", lib.stderr);
}
