//! `gputrace top`: the screen of devices and traced programs.

use std::fs::OpenOptions;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::folder::Folder;
use crate::harness::nvml::{DEVICE, gputrace_with};
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, eventually};
use crate::harness::terminal::{OnTerminal, UnreadTerminal};
use crate::harness::tool::{count, gputrace};

const SECOND_SCREEN: &str = "\x1b[?1049h";
const FIRST_SCREEN: &str = "\x1b[?1049l";

/// `top` without a driver.
fn top() -> Command {
    let mut command = gputrace();
    command.arg("top").env("GPUTRACE_NVML", "/nonexistent/libnvidia-ml.so.1").env("TERM", "xterm");
    command
}

/// `top` on the simulated devices that a script describes.
fn top_with(script: &str, folder: &Folder) -> Command {
    let mut command = gputrace_with(script, folder);
    command.arg("top").env("TERM", "xterm");
    command
}

#[track_caller]
fn scene_of(command: &mut Command) -> Value {
    serde_json::from_str(&finish(command.args(["--once", "--json"])).expect_code(0).stdout).unwrap()
}

/// Starts a traced program that launches kernels and then waits. Returns its session and the number of
/// launches.
fn running(folder: &Folder) -> (Session, u64) {
    let mut session = Session::run(folder, &[], compiled("flight", Link::Driver), &["wait", "0.1"]);
    let launched = session.line().parse().unwrap();
    (session, launched)
}

#[test]
fn traced_program_has_its_live_tables() {
    let folder = Folder::new();
    let (session, launched) = running(&folder);
    // Retry: the records of the kernels arrive some milliseconds after the launches.
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
fn devices_have_their_values() {
    let folder = Folder::new();
    let scene = scene_of(&mut top_with(DEVICE, &folder));
    for (pointer, value) in [
        ("/devices/0/info/name", json!("Fake H100")),
        ("/devices/0/sample/utilization/gpu_percent", json!(78)),
        ("/devices/0/sample/memory/used", json!(18_u64 << 30)),
        ("/devices/0/sample/thermal/temperature_celsius", json!(67)),
        ("/devices/0/allocations", Value::Null),
        ("/processes/0/pid", json!(4_000_001)),
        ("/processes/0/memory", json!(512 << 20)),
        ("/problems", json!([])),
    ] {
        assert_eq!(scene.pointer(pointer), Some(&value), "{pointer}: {scene:#}");
    }
    let frame = finish(top_with(DEVICE, &folder).arg("--once")).expect_code(0).stdout;
    for part in ["78 %", "18.0 GiB / 80.0 GiB", "Power: 288 / 450 W", "(WARM)", "Clocks lowered: power cap"] {
        assert!(frame.contains(part), "{part}:\n{frame}");
    }
    assert!(frame.contains("4000001"), "{frame}");
}

#[test]
fn traced_program_is_marked_and_has_its_allocations() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &[], compiled("holds_memory", Link::Driver), &[]);
    assert_eq!(session.line(), "ready");
    let program = session.program();
    let script = format!("{DEVICE}process = {program} 3MiB\n");
    let scene = eventually("its allocations", || {
        let scene = scene_of(&mut top_with(&script, &folder));
        (scene["devices"][0]["allocations"] == 3).then_some(scene)
    });
    let rows = scene["processes"].as_array().unwrap();
    let row = |pid: u32| rows.iter().find(|row| row["pid"] == pid).unwrap();
    assert_eq!((&row(program)["is_traced"], &row(program)["allocations"]), (&json!(true), &json!(3)));
    assert!(row(program)["command"].as_str().unwrap().ends_with("holds_memory"), "{scene:#}");
    assert_eq!(row(4_000_001)["allocations"], Value::Null);
    // Other sessions of this user may be there too.
    let sessions = scene["sessions"].as_array().unwrap();
    let is_own = |shown: &&Value| shown["processes"].as_array().unwrap().contains(&json!(program));
    let shown = sessions.iter().find(is_own).unwrap();
    assert_eq!((&shown["held_bytes"], &shown["peak_bytes"]), (&json!(3 << 20), &json!(5 << 20)));
    let memory = shown["tables"]["memory"].as_array().unwrap();
    let live: u64 = memory.iter().map(|row| count(row, "live")).sum();
    assert_eq!((live, &memory[0]["kind"], &memory[0]["is_on_device"]), (3, &json!("device"), &json!(true)));
    assert_eq!(session.end().0.code(), Some(0));
}

/// SIGSTOP stops the collector of one session, as Ctrl-Z in its terminal would.
#[test]
fn silent_session_is_named_and_keeps_no_other_waiting() {
    let (folder, other) = (Folder::new(), Folder::new());
    let (silent, _) = running(&folder);
    let (answers, _) = running(&other);
    silent.send(libc::SIGSTOP);
    let scene = scene_of(&mut top());
    let of = |session: &Session| {
        let sessions = scene["sessions"].as_array().unwrap();
        sessions.iter().find(|found| count(found, "pid") == u64::from(session.pid())).unwrap().clone()
    };
    assert!(of(&silent)["problem"].as_str().unwrap().contains("has not answered"), "{scene:#}");
    assert!(of(&answers).get("problem").is_none() && count(&of(&answers), "launches") > 0, "{scene:#}");
    let mut screen = OnTerminal::start(&mut top());
    screen.waits_for("q quit");
    screen.press("q");
    assert_eq!(screen.child.wait().unwrap().code(), Some(0));
    silent.send(libc::SIGCONT);
    assert_eq!((silent.end().0.code(), answers.end().0.code()), (Some(0), Some(0)));
}

#[test]
fn several_devices_are_shown_and_a_lost_one_says_why() {
    let folder = Folder::new();
    let script =
        format!("{DEVICE}[device]\nname = Gone\nlost @ 0s..\n[device]\nname = Third\ngpu = 5\nmem = 1\n");
    let frame = finish(top_with(&script, &folder).arg("--once")).expect_code(0).stdout;
    assert!(frame.contains("3 GPUs") && frame.contains("device 1 is lost: "), "{frame}");
    let lines = frame.lines().filter(|line| line.contains("Fake H100 ") || line.contains("Third "));
    assert!(lines.filter(|line| line.contains("GPU[")).count() == 2, "{frame}");
    let scene = scene_of(&mut top_with(&script, &folder));
    assert_eq!(scene["devices"][1]["sample"]["memory"]["used"], Value::Null);
}

#[test]
fn keys_work_while_a_driver_hangs() {
    let folder = Folder::new();
    let mut screen = OnTerminal::start(&mut top_with("hang nvmlInit_v2 @ 0s..\n[device]\n", &folder));
    screen.waits_for("reading");
    screen.press("q");
    assert_eq!(screen.child.wait().unwrap().code(), Some(0));
    screen.waits_for(FIRST_SCREEN);
}

#[test]
fn screen_of_every_size_is_drawn_and_follows_a_new_size() {
    let folder = Folder::new();
    let mut screen = OnTerminal::start_of_size(top_with(DEVICE, &folder).args(["--interval", "0.1"]), 1, 1);
    screen.waits_for(SECOND_SCREEN);
    // The screen has one cell, which shows the first letter of the footer.
    screen.waits_for("q");
    assert!(!screen.sent().contains("COMMAND"));
    screen.resize(40, 120);
    screen.waits_for("COMMAND");
    screen.resize(2, 3);
    screen.press("q");
    assert_eq!(screen.child.wait().unwrap().code(), Some(0));
}

#[test]
fn stopped_screen_restores_the_terminal_and_takes_it_again() {
    // The kernel ignores SIGTSTP in an orphaned process group, which the test's group may be. A group of its
    // own is not orphaned, since its parent is in another group of the session.
    let mut screen = OnTerminal::start(top().process_group(0));
    screen.waits_for("q quit");
    screen.press("\x1a");
    let state = format!("/proc/{}/stat", screen.child.id());
    eventually("its stop", || std::fs::read_to_string(&state).ok().filter(|text| text.contains(") T ")));
    assert!(screen.is_restored() && screen.sent().ends_with(FIRST_SCREEN));
    // SAFETY: kill takes plain numbers; the child was not waited for.
    unsafe { libc::kill(screen.child.id() as libc::pid_t, libc::SIGCONT) };
    eventually("the screen", || {
        let sent = screen.sent();
        sent.rsplit(FIRST_SCREEN).next().filter(|after| after.contains("q quit")).map(drop)
    });
    assert!(!screen.is_restored());
    screen.press("q");
    assert_eq!(screen.child.wait().unwrap().code(), Some(0));
    assert!(screen.is_restored());
}

/// Nobody reads the terminal, as when the network connection to it is lost.
#[test]
fn terminal_that_nobody_reads_does_not_keep_the_screen_from_its_end() {
    let folder = Folder::new();
    let mut screen = UnreadTerminal::start(top_with(DEVICE, &folder).args(["--interval", "0.1"]));
    screen.fill_by("h");
    // SAFETY: kill takes plain numbers; the child was not waited for.
    unsafe { libc::kill(screen.child.id() as libc::pid_t, libc::SIGTERM) };
    assert_eq!(screen.child.wait().unwrap().signal(), Some(libc::SIGTERM));
}

#[test]
fn stdout_that_takes_nothing_is_explained() {
    let folder = Folder::new();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = top_with(DEVICE, &folder).args(["--once", "--json"]).stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!((ended.status.code(), said.contains("cannot write to stdout: ")), (Some(74), true), "{said}");
    // If the reader of the pipe is gone, that is no error.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = top_with(DEVICE, &folder).arg("--once").stdout(writer).output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.is_empty()), (Some(0), true));
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
    // Wait for one word of the help page, not for a phrase: only letters that change are sent, so a phrase
    // may be sent in parts.
    screen.waits_for("SIGKILL");
    screen.press("q");
    assert_eq!(screen.child.wait().unwrap().code(), Some(0));
    screen.waits_for(FIRST_SCREEN);
    assert!(screen.is_restored());
}

#[test]
fn signals_that_end_the_screen_restore_the_terminal_first() {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGUSR1, libc::SIGABRT] {
        let mut screen = OnTerminal::start(&mut top());
        screen.waits_for("q quit");
        // SAFETY: kill takes plain numbers; the child was not waited for.
        unsafe { libc::kill(screen.child.id() as libc::pid_t, signal) };
        assert_eq!(screen.child.wait().unwrap().signal(), Some(signal));
        screen.waits_for(FIRST_SCREEN);
        assert!(screen.is_restored(), "signal {signal}");
    }
}
