//! The commands of docs/guide run as they stand, on the simulated device.
//!
//! A folder in front of PATH has the programs that the commands name: each runs a small traced program.
//! Commands that need a back end or a daemon are left out (otlp.rs and daemon.rs have those), and so are
//! those that scripts/check-manifests runs. What Slurm would do with its prolog has a test of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::harness::folder::Folder;
use crate::harness::nvml;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, ctl};
use crate::harness::tool::{clean_command, count, gputrace, report, simulated_folder};

const LEFT_OUT: [&str; 5] = ["localhost", "/run/user/", "/var/lib/", "gputrace ctl ", "TRACE_GPU=1"];
/// Those that go on until somebody ends them, or need a terminal.
const ENDLESS: [&str; 3] = ["gputrace monitor ", "gputrace top  ", "--live"];

/// A script for Slurm, as packaging/slurm has it.
fn slurm(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/slurm").join(name)
}

#[track_caller]
fn commands_run(page: &str, expected: usize) {
    let folder = Folder::new();
    let programs = folder.path().join("bin");
    fs::create_dir(&programs).unwrap();
    let tool = gputrace();
    let tool = Path::new(tool.get_program()).display();
    let program = compiled("graph", Link::Driver);
    let traced = format!("exec {}", program.display());
    let simulated =
        format!("[ \"$1\" != run ] || {{ shift; set -- run --simulate \"$@\"; }}\nexec {tool} \"$@\"");
    for (name, script) in [
        ("gputrace", simulated.as_str()),
        ("python", &traced),
        ("torchrun", &traced),
        ("srun", "exec \"$@\""),
        ("gputrace-task", &format!("exec {} \"$@\"", slurm("gputrace-task").display())),
        ("hostname", "echo machine"),
        ("app", &traced),
    ] {
        let path = programs.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    // The traces that pages name.
    let earlier = folder.join("gputrace-out/python-4711");
    let mut run = gputrace();
    run.args(["run", "--simulate", "-o"]).arg(&earlier).arg("--").arg(&program);
    finish(&mut run).expect_code(0);
    for name in ["a.gputrace", "b.gputrace"] {
        fs::copy(earlier.join("trace.gputrace"), folder.join(name)).unwrap();
    }
    let nvml = folder.join("nvml.script");
    fs::write(&nvml, nvml::DEVICE).unwrap();
    let commands = page.lines().filter_map(|line| line.strip_prefix("$ "));
    let is_left_out = |command: &&str| LEFT_OUT.iter().chain(&ENDLESS).any(|part| command.contains(part));
    let mut run = 0;
    for command in commands.filter(|command| !is_left_out(command)) {
        let mut shell = clean_command("sh");
        shell.env("GPUTRACE_NVML", nvml::library()).env("GPUTRACE_SIM_NVML", &nvml);
        shell.env("GPUTRACE_SYSFS", folder.path());
        shell.args(["-c", command]).env("PATH", &path).env("LD_LIBRARY_PATH", simulated_folder());
        let ended = finish(shell.current_dir(folder.path()));
        // A program that frees nothing has leaked.
        let code = if command.contains("--fail-on 'leaked>0'") { 4 } else { 0 };
        assert_eq!(ended.code(), Some(code), "{command}\n{}", ended.stderr);
        run += 1;
    }
    assert_eq!(run, expected);
}

#[test]
fn commands_of_the_first_trace_guide_run() {
    commands_run(include_str!("../../docs/guide/first-trace.md"), 16);
}

#[test]
fn commands_of_the_guide_to_findings_run() {
    commands_run(include_str!("../../docs/guide/findings.md"), 3);
}

#[test]
fn commands_of_the_flight_recorder_guide_run() {
    commands_run(include_str!("../../docs/guide/flight-recorder.md"), 1);
}

#[test]
fn commands_of_the_otlp_guide_run() {
    commands_run(include_str!("../../docs/guide/otlp.md"), 1);
}

#[test]
fn commands_of_the_pytorch_guide_run() {
    commands_run(include_str!("../../docs/guide/pytorch.md"), 8);
}

#[test]
fn commands_of_the_graphs_guide_run() {
    commands_run(include_str!("../../docs/guide/graphs.md"), 6);
}

#[test]
fn commands_of_the_servers_guide_run() {
    commands_run(include_str!("../../docs/guide/servers-and-requests.md"), 4);
}

#[test]
fn commands_of_the_several_gpus_guide_run() {
    commands_run(include_str!("../../docs/guide/several-gpus.md"), 8);
}

#[test]
fn commands_of_the_installation_guide_run() {
    commands_run(include_str!("../../docs/guide/install.md"), 4);
}

#[test]
fn commands_of_the_clusters_guide_run() {
    commands_run(include_str!("../../docs/guide/clusters.md"), 3);
}

/// Slurm sets what a TaskProlog prints as `export NAME=value`.
#[test]
fn slurm_prolog_traces_the_tasks_of_jobs_that_ask_for_it() {
    let folder = Folder::new();
    let tool = gputrace();
    let programs = Path::new(tool.get_program()).parent().unwrap().display();
    let task = |asks: &str, path: &str| {
        let mut prolog = clean_command(slurm("task-prolog"));
        prolog.env("PATH", path).env("TRACE_GPU", asks).env("SLURM_SUBMIT_DIR", folder.path());
        let said = finish(prolog.env("SLURM_JOB_ID", "7").env("SLURM_PROCID", "3")).expect_code(0);
        let mut task = clean_command(compiled("basic", Link::Driver));
        task.env("LD_LIBRARY_PATH", simulated_folder()).current_dir(folder.path());
        for line in said.stdout.lines() {
            let (name, value) = line.strip_prefix("export ").unwrap().split_once('=').unwrap();
            task.env(name, value);
        }
        (said.stderr, finish(&mut task).expect_code(0))
    };
    let path = std::env::var("PATH").unwrap();
    let with_tool = format!("{programs}:{path}");
    for (asks, path) in [("0", &with_tool), ("1", &"/usr/bin:/bin".to_owned())] {
        let (said, ended) = task(asks, path);
        assert_eq!(said.contains("this task is not traced"), asks == "1", "{said}");
        assert_eq!(ended.stderr, "");
        assert!(!folder.join("gputrace-out").exists());
    }
    task("1", &with_tool);
    let trace = folder.join("gputrace-out/job-7/task-3/trace.gputrace");
    assert_eq!(count(&report(&[trace]), "launches"), 10);
}

#[test]
fn slurm_task_without_a_command_explains_itself() {
    let ended = finish(&mut clean_command(slurm("gputrace-task"))).expect_code(2);
    assert!(ended.stderr.contains("srun gputrace-task python train.py"), "{}", ended.stderr);
}

#[test]
fn commands_of_the_monitoring_guide_run() {
    commands_run(include_str!("../../docs/guide/monitoring.md"), 5);
}

#[test]
fn commands_of_the_memory_guide_run() {
    commands_run(include_str!("../../docs/guide/memory.md"), 12);
}

#[test]
fn commands_of_the_comparing_guide_run() {
    commands_run(include_str!("../../docs/guide/comparing.md"), 5);
}

/// Those that begin a session run as they stand, and those with PID ask a session that goes on.
#[test]
fn commands_of_the_control_guide_run() {
    let page = include_str!("../../docs/guide/control.md");
    commands_run(page, 5);
    let folder = Folder::new();
    let mut session = Session::run(&folder, &[], compiled("toggled", Link::Driver), &[]);
    assert_eq!(session.line(), "ready");
    let asked = page.lines().filter_map(|line| line.strip_prefix("$ gputrace ctl PID "));
    let mut run = 0;
    for words in asked {
        let words: Vec<&str> = words.split_whitespace().take_while(|word| *word != "#").collect();
        ctl(session.pid(), &words).expect_code(0);
        run += 1;
    }
    assert_eq!(run, 6);
    session.release();
    assert!(session.end().0.success());
}

#[test]
fn commands_of_the_windows_guide_run() {
    commands_run(include_str!("../../docs/guide/windows.md"), 3);
}

#[test]
fn commands_of_the_exports_guide_run() {
    commands_run(include_str!("../../docs/guide/exports.md"), 16);
}
