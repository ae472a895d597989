//! `gputrace top`: the screen of devices and traced programs.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, eventually};
use crate::harness::terminal::OnTerminal;
use crate::harness::tool::{count, gputrace};

const SECOND_SCREEN: &str = "\x1b[?1049h";
const FIRST_SCREEN: &str = "\x1b[?1049l";

/// `top` where there is no driver.
fn top() -> Command {
    let mut command = gputrace();
    command.arg("top").env("GPUTRACE_NVML", "/nonexistent/libnvidia-ml.so.1").env("TERM", "xterm");
    command
}

/// A program that has launched kernels and waits, and how many.
fn running(folder: &Folder) -> (Session, u64) {
    let mut session = Session::run(folder, &[], compiled("flight", Link::Driver), &["wait", "0.1"]);
    let launched = session.line().parse().unwrap();
    (session, launched)
}

#[test]
fn traced_program_has_its_live_tables() {
    let folder = Folder::new();
    let (session, launched) = running(&folder);
    // The device's records come some milliseconds after the launches.
    let found = eventually("its kernels", || {
        let json = finish(top().args(["--once", "--json"])).expect_code(0).stdout;
        let scene: Value = serde_json::from_str(&json).unwrap();
        let sessions = scene["sessions"].as_array().unwrap();
        let found = sessions.iter().find(|found| count(found, "pid") == u64::from(session.pid()))?.clone();
        let kernels = found["tables"]["kernels"].as_array().unwrap().iter();
        let calls: u64 = kernels.map(|kernel| count(kernel, "calls")).sum();
        (calls == launched).then_some(found)
    });
    assert_eq!((count(&found, "launches"), count(&found, "lost")), (launched, 0), "{found:#}");
    assert_eq!(found["processes"], serde_json::json!([session.program()]));
    let kernels = found["tables"]["kernels"].as_array().unwrap();
    assert!(kernels.iter().all(|kernel| count(kernel, "total_ns") > 0), "{found:#}");
    let of = |table: &str| {
        found["tables"][table].as_array().unwrap().iter().map(|row| count(row, "calls")).sum::<u64>()
    };
    assert!(of("streams") >= launched && of("lines") >= launched, "{found:#}");
    assert_eq!(session.end().0.code(), Some(0));
}

#[test]
fn frame_in_a_pipe_is_text_without_control_characters() {
    let folder = Folder::new();
    let (session, _) = running(&folder);
    let ended = finish(top().arg("--once").env("COLUMNS", "200")).expect_code(0);
    assert!(ended.stdout.contains("no GPU") && ended.stdout.contains("2 Kernels"), "{}", ended.stdout);
    assert!(!ended.stdout.chars().any(|letter| letter.is_control() && letter != '\n'), "{:?}", ended.stdout);
    assert_eq!(session.end().0.code(), Some(0));
}

#[test]
fn screen_needs_a_terminal() {
    let ended = finish(&mut top()).expect_code(2);
    assert!(
        ended.stderr.contains("top needs a terminal") && ended.stderr.contains("--once"),
        "{}",
        ended.stderr
    );
    finish(top().arg("--json")).expect_code(2);
    finish(top().args(["--once", "--interval", "0"])).expect_code(2);
}

#[test]
fn terminal_is_left_as_it_was_found() {
    let mut screen = OnTerminal::start(&mut top());
    screen.waits_for("gputrace top");
    assert!(screen.sent().contains(SECOND_SCREEN) && !screen.is_restored());
    screen.press("h");
    // A word of the page of keys: only letters that change are sent, so phrases may come in parts.
    screen.waits_for("SIGKILL");
    screen.press("q");
    assert_eq!(screen.child.wait().unwrap().code(), Some(0));
    screen.waits_for(FIRST_SCREEN);
    assert!(screen.is_restored());
}

#[test]
fn signals_that_end_the_screen_restore_the_terminal_first() {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        let mut screen = OnTerminal::start(&mut top());
        screen.waits_for("q quit");
        // SAFETY: kill takes plain numbers; the child was not waited for.
        unsafe { libc::kill(screen.child.id() as libc::pid_t, signal) };
        assert_eq!(screen.child.wait().unwrap().signal(), Some(signal));
        screen.waits_for(FIRST_SCREEN);
        assert!(screen.is_restored(), "signal {signal}");
    }
}
