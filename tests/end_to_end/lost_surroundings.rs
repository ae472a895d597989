//! Programs whose environment is cleared, and machines without /proc: traced all the same, or the cause is
//! named.

use std::process::Command;

use gputrace_collector::batch::Batch;
use gputrace_collector::trace_file::TraceReader;
use gputrace_wire::clock::tick;

use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{
    clean, clean_command, count, gputrace, library, report, run, run_command, simulated_folder,
};

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
        return needs::skipped("lost_drivers_are_named_as_the_cause", "there is a CUDA driver here");
    }
    assert!(
        ended.stderr.contains("; gputrace demo and run --simulate work without one\n"),
        "{}",
        ended.stderr
    );
}

/// A container's may be of 64 KiB, read-only or absent.
#[test]
fn lost_shared_memory_folder_changes_nothing() {
    let folder = Folder::new();
    let tool = gputrace();
    let mut command = Command::new("unshare");
    clean(&mut command);
    let script = "mount -t tmpfs -o ro,size=64k tmpfs /dev/shm || exit 99; \
                  exec \"$1\" run --simulate -o \"$2\" -- \"$3\"";
    command.args(["-m", "sh", "-c", script, "sh"]).arg(tool.get_program());
    let ended = finish(command.arg(folder.join("out")).arg(compiled("basic", Link::Driver)));
    if ended.code() != Some(0) && ended.stderr.contains("unshare: ") || ended.code() == Some(99) {
        let test = "lost_shared_memory_folder_changes_nothing";
        return needs::skipped(test, &format!("no file system can be mounted: {}", ended.stderr));
    }
    ended.expect_code(0);
    assert_eq!(count(&report(&[folder.join("out/trace.gputrace")]), "launches"), 10);
}

/// The kernel of a virtual machine may keep its time by another clock (`kvm-clock`), and then so do hooks.
#[test]
fn lost_counter_of_the_processor_changes_the_clock_alone() {
    for (option, recorded, paused) in [("--stacks=python", 3_000, 0), ("--start-paused", 0, 3_000)] {
        let folder = Folder::new();
        let mut command = Command::new("unshare");
        clean(&mut command);
        let script = "clock=/sys/devices/system/clocksource/clocksource0/current_clocksource; \
                      echo kvm-clock >\"$2/clock\" && mount --bind \"$2/clock\" $clock || exit 99; \
                      exec \"$1\" run --simulate \"$4\" -o \"$2/out\" -- \"$3\" 3000";
        command.args(["-m", "sh", "-c", script, "sh"]).arg(gputrace().get_program()).arg(folder.path());
        let ended = finish(command.arg(compiled("many", Link::Driver)).arg(option));
        if ended.code() != Some(0) && ended.stderr.contains("unshare: ") || ended.code() == Some(99) {
            let test = "lost_counter_of_the_processor_changes_the_clock_alone";
            return needs::skipped(test, &format!("no file system can be mounted: {}", ended.stderr));
        }
        ended.expect_code(0);
        let trace = folder.join("out/trace.gputrace");
        let clocks: Vec<u32> = TraceReader::open(&trace)
            .unwrap()
            .filter_map(|batch| match batch {
                Batch::ProcessBegin(begin) => Some(begin.tick_kind),
                _ => None,
            })
            .collect();
        assert_eq!(clocks, [tick::MONOTONIC_NS]);
        let report = report(&[trace]);
        let counts =
            [count(&report, "launches"), report["recording"]["paused_launches"].as_u64().unwrap_or(0)];
        assert_eq!(counts, [recorded, paused]);
        assert_eq!(count(&report, "timed_operations"), recorded);
        assert_eq!(report["complete"], true, "{:#}", report["dropped"]);
        // Of 61 launches one is measured.
        assert!(count(&report["cost"], "sampled_hooks") >= 40, "{:#}", report["cost"]);
        let hook_ns = report["cost"]["hook_ns"].as_f64().unwrap();
        assert!(hook_ns > 1.0 && hook_ns < 1e6, "{hook_ns}");
    }
}

/// A login shell's profile has `export LD_PRELOAD=$(gputrace lib)`: programs without CUDA write nothing more,
/// one with CUDA is traced, and `gputrace run` has its program for itself.
#[test]
fn lost_in_a_login_shell_the_library_traces_cuda_programs_alone() {
    let folder = Folder::new();
    let home = folder.path();
    let export = format!("export LD_PRELOAD={} GPUTRACE_OUT={}/out\n", library().display(), home.display());
    std::fs::write(folder.join(".profile"), export).unwrap();
    let login = |script: &str| {
        let mut shell = clean_command("sh");
        shell.env("HOME", home).env("LD_LIBRARY_PATH", simulated_folder()).current_dir(home);
        finish(
            shell
                .args(["-l", "-c", script])
                .arg(gputrace().get_program())
                .arg(compiled("basic", Link::Driver)),
        )
        .expect_code(0)
    };
    let ended = login("ls / | cat >/dev/null; env true; echo said");
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("said\n", ""));
    assert!(!folder.join("out").exists());
    login("\"$1\"");
    assert_eq!(count(&report(&[folder.join("out/trace.gputrace")]), "launches"), 10);
    login("\"$0\" run --simulate -o run -- \"$1\"");
    assert_eq!(count(&report(&[folder.join("run/trace.gputrace")]), "launches"), 10);
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
