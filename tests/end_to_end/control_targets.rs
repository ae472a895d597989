//! `gputrace ctl NAME` and `gputrace ctl --all`: whom they find, and what they refuse.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, eventually};
use crate::harness::tool::gputrace;

/// Sessions of this folder only: other tests' are elsewhere.
fn in_folder<'c>(command: &'c mut Command, base: &Path) -> &'c mut Command {
    command.env("XDG_RUNTIME_DIR", "").env("TMPDIR", base)
}

/// A program whose name no other test's has: sessions in /tmp are found by everybody.
fn program(base: &Path) -> PathBuf {
    let program = base.join("targeted");
    if !program.exists() {
        fs::copy(compiled("toggled", Link::Driver), &program).unwrap();
    }
    program
}

fn run(base: &Path, name: &str) -> Session {
    let mut command = gputrace();
    command.args(["run", "--simulate", "-o"]).arg(base.join(name)).arg("--");
    let mut session = Session::start(in_folder(command.arg(program(base)), base));
    assert_eq!(session.line(), "ready");
    session
}

fn asked(base: &Path, words: &[&str]) -> Ended {
    finish(in_folder(gputrace().arg("ctl").args(words), base))
}

#[test]
fn name_is_a_command_s_or_a_folder_s_and_belongs_to_one_session() {
    let folder = Folder::new();
    let base = folder.path();
    let first = run(base, "first");
    let paused = asked(base, &["targeted", "stop"]).expect_code(0);
    assert!(paused.stdout.starts_with("paused: 1 program, "), "{}", paused.stdout);
    let second = run(base, "second");
    let refused = asked(base, &["targeted", "start"]).expect_code(2);
    for session in [&first, &second] {
        assert!(refused.stderr.contains(&format!("{} (run targeted)", session.pid())), "{}", refused.stderr);
    }
    assert!(refused.stderr.contains("names 2 sessions") && refused.stdout.is_empty(), "{}", refused.stderr);
    let status = asked(base, &["second", "status", "--json"]).expect_code(0);
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["pid"], second.pid());
    let unknown = asked(base, &["third", "status"]).expect_code(66);
    assert!(unknown.stderr.contains("no session is named 'third'"), "{}", unknown.stderr);
    assert!(unknown.stderr.contains(&first.pid().to_string()), "{}", unknown.stderr);
    for session in [first, second] {
        assert_eq!(session.end().0.code(), Some(0));
    }
}

#[test]
fn all_sessions_have_a_line_each_and_the_worst_exit_code() {
    let folder = Folder::new();
    let base = folder.path();
    let none = asked(base, &["--all", "status"]);
    // Those in /tmp are everybody's.
    assert!([Some(0), Some(1), Some(66)].contains(&none.code()), "{}", none.stderr);
    let sessions = [run(base, "one"), run(base, "two")];
    let mut own: Vec<String> = sessions.iter().map(|session| session.pid().to_string()).collect();
    own.sort_by_key(|pid| pid.parse::<u32>().unwrap());
    let lines = |ended: &Ended| -> Vec<String> {
        let of_own = |line: &&str| own.iter().any(|pid| line.starts_with(&format!("{pid} (run targeted): ")));
        ended.stdout.lines().filter(of_own).map(str::to_owned).collect()
    };
    // A program that has just begun may not have joined yet.
    let status = eventually("two running sessions", || {
        let status = lines(&asked(base, &["--all", "status"]));
        status.iter().all(|line| line.contains("1 running")).then_some(status)
    });
    assert_eq!(status.len(), 2, "{status:?}");
    assert!(status.iter().all(|line| line.contains(" launches, ")), "{status:?}");
    // A session without a flight recorder has nothing to dump; that is the exit code, and each says it.
    let dumped = asked(base, &["--all", "dump"]).expect_code(1);
    for pid in &own {
        let said = format!("the session of process {pid} wrote no dump");
        assert!(dumped.stderr.contains(&said), "{}", dumped.stderr);
    }
    for session in sessions {
        assert_eq!(session.end().0.code(), Some(0));
    }
}

#[test]
fn words_that_make_no_sense_are_refused() {
    for (words, said) in [
        (&["--all"][..], "ctl needs one of start"),
        (&["--all", "halt"], "'halt' is none of"),
        (&["--all", "7", "stop"], "'7' is none of"),
        (&["7", "halt"], "'halt' is none of"),
        (&["0", "stop"], "'0' is no process"),
        (&["-1", "stop"], ""),
        (&["7", "set"], "set needs KEY=VALUE"),
        (&["7", "stop", "stacks=none"], "goes with set only"),
    ] {
        let refused = finish(gputrace().arg("ctl").args(words)).expect_code(2);
        assert!(refused.stderr.contains(said), "{words:?}: {}", refused.stderr);
    }
}
