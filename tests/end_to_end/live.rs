//! `gputrace run --live`: the screen for the program just started, which has a terminal of its own.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::eventually;
use crate::harness::terminal::OnTerminal;
use crate::harness::tool::gputrace;

const FIRST_SCREEN: &str = "\x1b[?1049l";

/// `run --live` of a shell script. It has a process group of its own, since pressed keys signal the group.
fn live(folder: &Folder, script: &str) -> Command {
    let mut command = gputrace();
    command.args(["run", "--live", "--simulate", "-o"]).arg(folder.join("out"));
    command.args(["--", "/bin/sh", "-c", script]);
    command.env("GPUTRACE_NVML", "/nonexistent/libnvidia-ml.so.1").env("TERM", "xterm").process_group(0);
    command
}

fn log(folder: &Folder) -> String {
    fs::read_to_string(folder.join("out/output.log")).unwrap_or_default()
}

/// Waits until the program has written that.
#[track_caller]
fn wrote(folder: &Folder, text: &str) {
    eventually(text, || log(folder).contains(text).then_some(()));
}

#[track_caller]
fn ended(screen: &mut OnTerminal) -> Option<i32> {
    let status = screen.child.wait().unwrap();
    screen.waits_for("gputrace: wrote ");
    assert!(screen.is_restored());
    status.code()
}

#[test]
fn screen_has_the_programs_kernels_and_the_log_what_it_writes() {
    let folder = Folder::new();
    let flight = compiled("flight", Link::Driver);
    let script =
        format!("stty size; echo so''me words; echo others >&2; {} wait 0.1; exit 7", flight.display());
    let mut screen = OnTerminal::start(&mut live(&folder, &script));
    screen.waits_for("first_kernel");
    assert!(!screen.is_restored());
    // The end of its input, which it waits for.
    screen.press("\x04");
    assert_eq!(ended(&mut screen), Some(7));
    let log = log(&folder);
    assert!(log.starts_with("40 120\nsome words\nothers\n"), "{log:?}");
    let sent = screen.sent();
    let (shown, after) = sent.rsplit_once(FIRST_SCREEN).unwrap();
    assert!(
        !shown.contains("some words") && after.contains("some words") && after.contains("Timed"),
        "{sent}"
    );
    for file in ["trace.gputrace", "flame.svg", "summary.txt"] {
        assert!(folder.join("out").join(file).exists(), "{file}");
    }
}

#[test]
fn redirected_streams_stay_as_they_are() {
    let folder = Folder::new();
    let script = "for fd in 0 1 2; do test -t $fd && echo $fd is a terminal >&2; done; echo to the file";
    let inner = live(&folder, script);
    let mut outer = Command::new("/bin/sh");
    outer.args(["-c", "exec \"$@\" > \"$0\""]).arg(folder.join("stdout")).arg(inner.get_program());
    outer.args(inner.get_args()).process_group(0).env("TERM", "xterm");
    outer.env("GPUTRACE_NVML", "/nonexistent/libnvidia-ml.so.1");
    let mut screen = OnTerminal::start(&mut outer);
    assert_eq!(ended(&mut screen), Some(0));
    assert_eq!(log(&folder), "0 is a terminal\n2 is a terminal\n");
    assert_eq!(fs::read_to_string(folder.join("stdout")).unwrap(), "to the file\n");
}

#[test]
fn nothing_is_started_without_a_terminal() {
    let folder = Folder::new();
    let ended = finish(&mut live(&folder, "echo started")).expect_code(2);
    assert!(ended.stderr.contains("run --live needs a terminal"), "{}", ended.stderr);
    assert!(ended.stdout.is_empty() && !folder.join("out").exists());
}

#[test]
fn program_that_does_not_start_leaves_terminal_and_folder_as_they_were() {
    let folder = Folder::new();
    let mut command = gputrace();
    command.args(["run", "--live", "-o"]).arg(folder.join("out")).args(["--", "/nonexistent/program"]);
    let mut screen = OnTerminal::start(command.process_group(0));
    assert_eq!(screen.child.wait().unwrap().code(), Some(127));
    screen.waits_for("/nonexistent/program");
    assert!(screen.is_restored() && !folder.join("out").exists());
}

#[test]
fn keys_for_signals_reach_the_program() {
    let folder = Folder::new();
    let script = "trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.1; done";
    let mut screen = OnTerminal::start(&mut live(&folder, script));
    screen.waits_for("Ctrl-C interrupt");
    wrote(&folder, "ready");
    screen.press("\x03");
    assert_eq!(ended(&mut screen), Some(5));
    assert!(log(&folder).ends_with("interrupted\n"));
    // A program that reads its terminal's keys itself gets the character.
    let folder = Folder::new();
    let script = "stty raw -echo; echo ready; dd bs=1 count=1 2>/dev/null | od -An -tx1";
    let mut screen = OnTerminal::start(&mut live(&folder, script));
    screen.waits_for("Ctrl-C interrupt");
    wrote(&folder, "ready");
    screen.press("\x03");
    assert_eq!(ended(&mut screen), Some(0));
    assert!(log(&folder).ends_with(" 03\n"), "{:?}", log(&folder));
}

#[test]
fn program_gets_every_new_size() {
    let folder = Folder::new();
    let script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done";
    let mut screen = OnTerminal::start(&mut live(&folder, script));
    screen.waits_for("Ctrl-C interrupt");
    wrote(&folder, "ready");
    screen.resize(30, 90);
    wrote(&folder, "30 90");
    screen.resize(1, 1);
    wrote(&folder, "1 1");
    screen.press("\x03");
    assert_eq!(screen.child.wait().unwrap().signal(), Some(libc::SIGINT));
    assert!(screen.is_restored());
}

#[test]
fn signals_end_the_program_and_restore_the_terminal() {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGABRT] {
        let folder = Folder::new();
        let mut screen = OnTerminal::start(&mut live(&folder, "echo ready; exec sleep 100"));
        screen.waits_for("Ctrl-C interrupt");
        wrote(&folder, "ready");
        // SAFETY: kill takes plain numbers; the child was not waited for.
        unsafe { libc::kill(screen.child.id() as libc::pid_t, signal) };
        assert_eq!(screen.child.wait().unwrap().signal(), Some(signal));
        assert!(screen.is_restored(), "signal {signal}");
        screen.waits_for("gputrace: wrote ");
    }
}

/// SIGSEGV is our own fault: the program is not told, and goes on.
#[test]
fn fault_of_gputrace_restores_the_terminal() {
    let folder = Folder::new();
    let mut screen = OnTerminal::start(&mut live(&folder, "echo ready $$; exec sleep 100"));
    screen.waits_for("Ctrl-C interrupt");
    wrote(&folder, "ready ");
    // SAFETY: kill takes plain numbers; the child was not waited for.
    unsafe { libc::kill(screen.child.id() as libc::pid_t, libc::SIGSEGV) };
    assert_eq!(screen.child.wait().unwrap().signal(), Some(libc::SIGSEGV));
    screen.waits_for(FIRST_SCREEN);
    assert!(screen.is_restored());
    let pid = log(&folder).split_whitespace().last().unwrap().parse().unwrap();
    // SAFETY: kill takes plain numbers; the pid is that of the sleeping program, which nobody else ends.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
}

#[test]
fn stop_stops_the_program_too_and_both_go_on() {
    let folder = Folder::new();
    let script = "echo ready $$; n=0; while :; do n=$((n+1)); echo turn $n; sleep 0.1; done";
    let mut screen = OnTerminal::start(&mut live(&folder, script));
    screen.waits_for("Ctrl-C interrupt");
    wrote(&folder, "ready ");
    let program = log(&folder).split_whitespace().nth(1).unwrap().to_owned();
    screen.press("\x1a");
    for pid in [screen.child.id().to_string(), program] {
        let state = format!("/proc/{pid}/stat");
        eventually("its stop", || fs::read_to_string(&state).ok().filter(|text| text.contains(") T ")));
    }
    // What the terminal was sent before the stop may still be on its way here.
    eventually("the terminal as it was", || {
        (screen.is_restored() && screen.sent().ends_with(FIRST_SCREEN)).then_some(())
    });
    let turns = log(&folder);
    // SAFETY: kill takes plain numbers; a negative one names the group that was made for the child.
    unsafe { libc::kill(-(screen.child.id() as libc::pid_t), libc::SIGCONT) };
    eventually("another turn", || (log(&folder).len() > turns.len()).then_some(()));
    eventually("the screen", || {
        let sent = screen.sent();
        sent.rsplit(FIRST_SCREEN).next().filter(|after| after.contains("Ctrl-C interrupt")).map(drop)
    });
    assert!(!screen.is_restored());
    screen.press("\x03");
    assert_eq!(screen.child.wait().unwrap().signal(), Some(libc::SIGINT));
    assert!(screen.is_restored());
}

#[test]
fn q_shows_the_output_and_passes_lines_on() {
    let folder = Folder::new();
    let script = "echo before; read -r line; echo got $line; read -r line || echo end of input";
    let mut screen = OnTerminal::start(&mut live(&folder, script));
    screen.waits_for("Ctrl-C interrupt");
    wrote(&folder, "before");
    screen.press("q");
    screen.waits_for("before");
    assert!(screen.is_restored());
    screen.press("a word\n");
    screen.waits_for("got a word");
    screen.press("\x04");
    assert_eq!(ended(&mut screen), Some(0));
    assert_eq!(log(&folder), "before\ngot a word\nend of input\n");
}
