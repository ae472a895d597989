//! Signal handlers that interrupt hooks and launch, or fork, on a driver that bears it: the
//! simulated one, as the real one, must not be entered by a handler that interrupted it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::life::report_of_all;
use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{self, bare_command, count, gputrace, report};

/// A folder with a libcuda.so.1 that has no locks.
pub fn driver(folder: &Folder) -> PathBuf {
    let path = folder.join("driver");
    fs::create_dir(&path).unwrap();
    fs::copy(compiled("signal_safe_driver", Link::Shared), path.join("libcuda.so.1")).unwrap();
    path
}

/// What main and the handler said that they launched.
pub fn launched(ended: &Ended) -> (u64, u64) {
    let line = ended.stderr.lines().find_map(|line| line.strip_prefix("launches "));
    let numbers = line.and_then(|line| line.split_once(' ')).unwrap_or_else(|| panic!("{}", ended.stderr));
    (numbers.0.parse().unwrap(), numbers.1.parse().unwrap())
}

/// Runs the storm alone, under `run` and bare, and has each report checked against what it said.
#[track_caller]
fn storm(how: &str, handlers: &str, is_paused: bool, check: impl Fn(&Value, (u64, u64))) {
    let folder = Folder::new();
    let (driver, program) = (driver(&folder), compiled("handler_storm", Link::Driver));
    let mut alone = Command::new(&program);
    tool::clean(&mut alone);
    let alone = finish(alone.args([how, handlers]).env("LD_LIBRARY_PATH", &driver)).expect_code(0);
    assert!(alone.stdout.contains("failed 0\n"), "{}", alone.stdout);

    let start_paused = ("GPUTRACE_START_PAUSED", if is_paused { "on" } else { "off" });
    let mut run = gputrace();
    run.args(["run", "--device-times", "off", "-o"]).arg(folder.join("out")).arg("--").arg(&program);
    run.args([how, handlers]).env("LD_LIBRARY_PATH", &driver).env(start_paused.0, start_paused.1);
    let run = finish(&mut run).expect_code(0);
    assert_eq!(run.stdout, alone.stdout, "{}", run.stderr);
    check(&report(&[folder.join("out/trace.gputrace")]), launched(&run));

    let bare = bare_command(&program).env("LD_LIBRARY_PATH", &driver).env("GPUTRACE_DEVICE_TIMES", "off");
    let bare = bare.env(start_paused.0, start_paused.1).arg(how).arg(handlers).go().expect_code(0);
    assert_eq!(bare.ended.stdout, alone.stdout, "{}", bare.ended.stderr);
    check(&report_of_all(&bare), launched(&bare.ended));
}

/// A handler that interrupted a hook passes through, and that is counted; so is what a full ring drops.
#[test]
fn handler_that_launches_many_thousand_times_a_second_is_counted() {
    storm("launches", "5000", false, |report, (in_main, in_handler)| {
        let (recorded, lost) = (count(report, "launches"), tool::dropped(report));
        assert_eq!(recorded + lost, in_main + in_handler, "{report:#}");
        assert!(report["dropped"]["nested_calls"].as_u64().unwrap_or(0) > 0, "no hook was met: {report:#}");
    });
}

/// The child goes on in the hook that the handler interrupted, without what its parent records to.
#[test]
fn handler_that_forks_inside_hooks_harms_neither_parent_nor_child() {
    storm("forks", "1500", false, |report, (in_main, _)| {
        assert_eq!(count(report, "launches") + tool::dropped(report), in_main, "{report:#}");
    });
}

/// The same in a paused session, whose launches take another way.
#[test]
fn handlers_inside_of_paused_hooks_are_counted_and_may_fork() {
    let counts = |report: &Value| {
        (count(report, "launches"), count(&report["recording"], "paused_launches"), tool::dropped(report))
    };
    storm("launches", "5000", true, |report, (in_main, in_handler)| {
        let nested = report["dropped"]["nested_calls"].as_u64().unwrap_or(0);
        assert_eq!(counts(report), (0, in_main + in_handler - nested, nested), "{report:#}");
        assert!(nested > 0, "no hook was met: {report:#}");
    });
    storm("forks", "1500", true, |report, (in_main, _)| {
        assert_eq!(counts(report), (0, in_main, 0), "{report:#}");
    });
}

/// A handler that forks there would wait for ever for the allocator, which its own thread holds.
#[test]
fn hooks_allocate_nothing_while_a_handler_may_run() {
    let folder = Folder::new();
    let (driver, program) = (driver(&folder), compiled("allocates", Link::Driver));
    for options in [&[][..], &["--stacks", "python,native,nvtx"]] {
        let mut run = gputrace();
        run.args(["run", "--device-times", "off", "-o"]).arg(folder.join("out")).args(options);
        let ended = finish(run.arg("--").arg(&program).env("LD_LIBRARY_PATH", &driver)).expect_code(0);
        // Some do: what they look for is not there, and the C library says so.
        let said = ended.stdout.strip_prefix("allocations 0, held back ").map(str::trim_end);
        assert!(said.is_some_and(|held_back| held_back != "0"), "{}{}", ended.stdout, ended.stderr);
        assert!(count(&report(&[folder.join("out/trace.gputrace")]), "launches") >= 24);
    }
}
