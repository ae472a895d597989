//! A program's life without us, under `run`, and bare: what others see of it must be the same.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{
    self, Run, Traced, bare_command, count, dropped, gputrace, run_command, simulated_folder,
};

/// The three lives of a program.
#[derive(Debug)]
pub struct Lives {
    pub untraced: Ended,
    pub run: Traced,
    pub bare: Traced,
}

/// Runs a program of tests/programs three times and expects the same output, errors and end.
#[track_caller]
pub fn same_as_untraced(program: &str, arguments: &[&str]) -> Lives {
    same_command_as_untraced(compiled(program, Link::Driver), arguments)
}

#[track_caller]
pub fn same_command_as_untraced(program: impl Into<OsString>, arguments: &[&str]) -> Lives {
    let program = program.into();
    let with = |run: Run| arguments.iter().fold(run, |run, argument| run.arg(argument)).go();
    let lives = Lives {
        untraced: untraced(&program, arguments),
        run: with(run_command(&program)),
        bare: with(bare_command(&program)),
    };
    same(&lives.untraced, &lives.run.ended, "under run");
    same(&lives.untraced, &lives.bare.ended, "bare");
    lives
}

/// The program on the simulated device, and nothing of ours.
pub fn untraced(program: &OsString, arguments: &[&str]) -> Ended {
    let mut command = Command::new(program);
    tool::clean(&mut command);
    finish(command.args(arguments).env("LD_LIBRARY_PATH", simulated_folder()))
}

/// How many close-on-exec descriptors of ours a program may find.
const DESCRIPTORS: u32 = 2;

#[track_caller]
fn same(untraced: &Ended, traced: &Ended, how: &str) {
    let said = || format!("{how}:\n--- untraced\n{untraced:#?}\n--- traced\n{traced:#?}");
    assert_eq!((traced.code(), traced.signal()), (untraced.code(), untraced.signal()), "{}", said());
    let lines = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
    let (theirs, ours) = (lines(&untraced.stdout), lines(&traced.stdout));
    assert_eq!(ours.len(), theirs.len(), "{}", said());
    for (alone, seen) in theirs.iter().zip(&ours) {
        let number =
            |line: &str| line.strip_prefix("close-on-exec ").and_then(|text| text.parse::<u32>().ok());
        match (number(alone), number(seen)) {
            (Some(few), Some(many)) => {
                assert!((few..=few + DESCRIPTORS).contains(&many), "{alone} became {many}: {}", said());
            }
            _ => assert_eq!(seen, alone, "{}", said()),
        }
    }
    // Ours come between, and the summary after.
    let mut seen = traced.stderr.lines();
    for line in untraced.stderr.lines().filter(|line| !line.starts_with("launches ")) {
        assert!(seen.any(|other| other == line), "{line:?} is missing: {}", said());
    }
}

impl Lives {
    /// Expects what was recorded to hold, under `run` and bare alike.
    #[track_caller]
    pub fn each(&self, check: impl Fn(&Value, &str)) -> &Lives {
        check(&report_of_all(&self.run), "under run");
        check(&report_of_all(&self.bare), "bare");
        self
    }

    /// Expects exactly so many launches, each with a device record, and nothing dropped.
    #[track_caller]
    pub fn launches(&self, wanted: u64) -> &Lives {
        self.each(|report, how| {
            assert_eq!(count(report, "launches"), wanted, "{how}: {report:#}");
            assert_eq!(dropped(report), 0, "{how}: {report:#}");
        })
    }
}

/// The report on all traces of a run; with auto-collect each process has its own. A killed program's
/// collector ends after it, and is waited for.
#[track_caller]
pub fn report_of_all(traced: &Traced) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let traces = traces_in(&traced.output);
        let ended = finish(gputrace().args(["report", "--json"]).args(&traces));
        // Without a trace, the newest one of the current folder would be reported.
        if ended.code() == Some(0) && !traces.is_empty() {
            return serde_json::from_str(&ended.stdout).unwrap();
        }
        assert!(Instant::now() < deadline, "{traces:?}: {}\n{}", ended.stderr, traced.ended.stderr);
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn traces_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(traces_in(&path));
        } else if path.file_name().is_some_and(|name| name == "trace.gputrace") {
            found.push(path);
        }
    }
    found.sort();
    found
}
