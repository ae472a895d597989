//! The commands of docs/guide run as they stand, on the simulated device.
//!
//! A folder in front of PATH has the programs that the commands name: each runs a small traced program.
//! Commands that need a back end or a daemon are left out (otlp.rs and daemon.rs have those).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{clean_command, gputrace};

const LEFT_OUT: [&str; 3] = ["localhost", "/run/user/", "gputrace ctl "];

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
        ("hostname", "echo machine"),
    ] {
        let path = programs.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let commands = page.lines().filter_map(|line| line.strip_prefix("$ "));
    let mut run = 0;
    for command in commands.filter(|command| !LEFT_OUT.iter().any(|part| command.contains(part))) {
        let ended =
            finish(clean_command("sh").args(["-c", command]).env("PATH", &path).current_dir(folder.path()));
        assert_eq!(ended.code(), Some(0), "{command}\n{}", ended.stderr);
        run += 1;
    }
    assert_eq!(run, expected);
}

#[test]
fn commands_of_the_pytorch_guide_run() {
    commands_run(include_str!("../../docs/guide/pytorch.md"), 5);
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
fn commands_of_the_exports_guide_run() {
    commands_run(include_str!("../../docs/guide/exports.md"), 14);
}
