//! Signals while a program runs: the terminal's, and those sent to gputrace alone.

mod group;

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::Session;
use crate::harness::tool::{self, count, gputrace};

/// Starts the program that waits for a signal, in a process group of its own, and returns when
/// it waits.
fn waiting(folder: &Folder) -> Child {
    let mut command = gputrace();
    command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).arg("--");
    command.arg(compiled("ending", Link::Driver)).arg("wait_for_signal");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    // The tests may themselves run where signals are ignored: in a script's background, say.
    // SAFETY: signal takes plain numbers and may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "waiting\n");
    child
}

fn send(target: i32, signal: i32) {
    // SAFETY: plain numbers; the target is the child or the group that this test made.
    assert_eq!(unsafe { libc::kill(target, signal) }, 0);
}

#[track_caller]
fn end(mut child: Child) -> ExitStatus {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            send(-child.id().cast_signed(), libc::SIGKILL);
            panic!("did not end by the signal: {:?}", child.wait());
        }
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn ctrl_c_ends_the_program_and_what_was_recorded_is_written() {
    let folder = Folder::new();
    let child = waiting(&folder);
    // As a terminal does: to the whole group.
    send(-child.id().cast_signed(), libc::SIGINT);
    assert_eq!(end(child).signal(), Some(libc::SIGINT));
    assert_eq!(count(&tool::report(&[folder.join("out/trace.gputrace")]), "launches"), 3);
    assert!(folder.join("out/flame.svg").is_file());
}

#[test]
fn sigterm_is_passed_on() {
    let folder = Folder::new();
    let child = waiting(&folder);
    send(child.id().cast_signed(), libc::SIGTERM);
    assert_eq!(end(child).signal(), Some(libc::SIGTERM));
    assert!(folder.join("out/summary.txt").is_file());
}

/// A shell that counts what it hears.
const HEARS: &str = "for s in INT QUIT HUP USR1 USR2 ALRM VTALRM PROF XCPU IO PWR WINCH ABRT RTMIN RTMIN+5 RTMAX TERM; do \
                     trap \"echo $s\" $s; done; trap 'echo TERM; exit 9' TERM; echo ready; while :; do sleep 0.02; done";

/// Batch systems send such signals to the job's first process, and take its end for the job's.
#[test]
fn signals_to_us_alone_are_the_programs() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &[], "bash", &["-c", HEARS]);
    assert_eq!(session.line(), "ready");
    let signals = [
        (libc::SIGINT, "INT"),
        (libc::SIGQUIT, "QUIT"),
        (libc::SIGHUP, "HUP"),
        (libc::SIGUSR1, "USR1"),
        (libc::SIGUSR2, "USR2"),
        (libc::SIGALRM, "ALRM"),
        (libc::SIGVTALRM, "VTALRM"),
        (libc::SIGPROF, "PROF"),
        (libc::SIGXCPU, "XCPU"),
        (libc::SIGIO, "IO"),
        (libc::SIGPWR, "PWR"),
        (libc::SIGWINCH, "WINCH"),
        (libc::SIGABRT, "ABRT"),
        (libc::SIGRTMIN(), "RTMIN"),
        (libc::SIGRTMIN() + 5, "RTMIN+5"),
        (libc::SIGRTMAX(), "RTMAX"),
        (libc::SIGTERM, "TERM"),
    ];
    for (signal, name) in signals {
        session.send(signal);
        assert_eq!(session.line(), name);
    }
    let (status, said) = session.end();
    assert_eq!(status.code(), Some(9), "{said}");
    assert!(folder.join("out/summary.txt").is_file());
}

/// An alarm outlives the exec of gputrace, and is its child's no more: `perl -e 'alarm 5; exec @ARGV'`.
#[test]
fn alarm_that_was_set_before_us_is_the_programs() {
    let folder = Folder::new();
    let mut command = gputrace();
    command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).args(["--", "bash", "-c", HEARS]);
    // SAFETY: alarm takes a plain number and may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::alarm(3);
            Ok(())
        });
    }
    let mut session = Session::start(&mut command);
    assert_eq!(session.line(), "ready");
    assert_eq!(session.line(), "ALRM");
    session.send(libc::SIGTERM);
    assert_eq!(session.end().0.code(), Some(9));
}

/// What a terminal sends, it sends to the program as well: it must not get it twice.
#[test]
fn ctrl_c_at_a_terminal_reaches_the_program_once() {
    assert_eq!(interrupts_by_a_terminal(&[]), "1");
}

/// `timeout` leaves it, for one: it gets what the terminal sends from `run`.
#[test]
fn ctrl_c_at_a_terminal_reaches_a_program_that_left_our_group_once() {
    let leaves = "import os, sys; os.setpgid(0, 0); os.execvp(sys.argv[1], sys.argv[1:])";
    assert_eq!(interrupts_by_a_terminal(&["python3", "-c", leaves]), "1");
}

/// How many SIGINT a shell that is started by such a command gets of one Ctrl-C.
fn interrupts_by_a_terminal(starts: &[&str]) -> String {
    let folder = Folder::new();
    let script = "import os, pty, sys\n\
        pid, terminal = pty.fork()\n\
        if pid == 0: os.execvp(sys.argv[1], sys.argv[1:])\n\
        text = b''\n\
        def until(word):\n    \
            global text\n    \
            while word not in text: text += os.read(terminal, 1000)\n\
        until(b'ready')\n\
        os.write(terminal, b'\\x03')\n\
        until(b'INT')\n\
        os.kill(pid, 10)\n\
        until(b'USR1')\n\
        os.kill(pid, 15)\n\
        until(b'TERM')\n\
        print(text[:text.index(b'TERM')].count(b'INT'))";
    let mut command = Command::new("python3");
    tool::clean(&mut command);
    command.args(["-c", script]).arg(gputrace().get_program());
    command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).arg("--").args(starts);
    finish(command.args(["bash", "-c", HEARS])).expect_code(0).stdout.trim().to_owned()
}

/// What was closed for us is closed for the program, though the language's runtime opens it for us.
#[test]
fn closed_standard_descriptors_stay_closed() {
    for (closed, command) in
        [("<&-", "cat; exit $?"), (">&-", "echo hi"), ("2>&-", "ls /dev/fd/2 >/dev/null")]
    {
        let status = |tool: Option<&str>| {
            let folder = Folder::new();
            let file = folder.join("status");
            let traced = tool.map_or(String::new(), |tool| format!("{tool} run --simulate -o out --"));
            let mut outer = Command::new("bash");
            tool::clean(&mut outer);
            outer.arg("-c").arg(format!(
                "exec 9>{}; exec {closed}; {traced} bash -c '{command}'; echo $? >&9",
                file.display()
            ));
            finish(outer.current_dir(folder.path()));
            std::fs::read_to_string(file).unwrap()
        };
        let alone = status(None);
        assert_ne!(alone, "0\n", "{closed}");
        assert_eq!(status(gputrace().get_program().to_str()), alone, "{closed}");
    }
}

/// Batch systems set such a limit on the whole job.
#[test]
fn limit_on_the_size_of_files_takes_the_outputs_and_not_the_status() {
    tool::library();
    for blocks in ["0", "1", "4"] {
        let folder = Folder::new();
        let mut outer = Command::new("bash");
        tool::clean(&mut outer);
        // The program finds the signal as it was: it dies of it where it writes too much.
        let inner = "(trap - XFSZ; ulimit -f 0; exec dd if=/dev/zero of=big bs=1k count=64 2>/dev/null); \
                     echo $?; \"$0\"; exit 9";
        outer.arg("-c").arg(format!("ulimit -f {blocks}; \"$@\"")).arg("bash").arg(gputrace().get_program());
        outer.args(["run", "--simulate", "-o"]).arg(folder.join("out")).args(["--", "bash", "-c", inner]);
        outer.arg(compiled("basic", Link::Driver)).current_dir(folder.path());
        let ended = finish(&mut outer);
        assert_eq!((ended.code(), ended.signal()), (Some(9), None), "{blocks}: {}", ended.stderr);
        assert!(ended.stdout.starts_with("153\n"), "{blocks}: {}", ended.stdout);
        assert!(ended.stderr.contains("file too large"), "{blocks}: {}", ended.stderr);
    }
}

/// The collector is killed: the program goes on, and what was written until then is read.
#[test]
fn killed_collector_harms_nobody() {
    let folder = Folder::new();
    let child = waiting(&folder);
    let program = only_child_of(child.id());
    let session = session_of(program);
    let trace = folder.join("out/trace.gputrace");
    let deadline = Instant::now() + Duration::from_secs(60);
    let read = loop {
        let ended = finish(gputrace().args(["report", "--json"]).arg(&trace));
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        if report["launches"] == 3 || Instant::now() > deadline {
            break ended;
        }
        sleep(Duration::from_millis(50));
    };
    // The file is still being written: it is read in part, and that is said.
    let read = read.expect_code(3);
    assert!(read.stderr.contains("was not closed"), "{}", read.stderr);
    send(child.id().cast_signed(), libc::SIGKILL);
    assert_eq!(end(child).signal(), Some(libc::SIGKILL));
    sleep(Duration::from_millis(200));
    let state = std::fs::read_to_string(format!("/proc/{program}/stat")).unwrap();
    assert!(!state.contains(") Z"), "the program died with its collector: {state}");
    send(program, libc::SIGTERM);
    let after = finish(gputrace().args(["report", "--json"]).arg(&trace)).expect_code(3);
    let report: serde_json::Value = serde_json::from_str(&after.stdout).unwrap();
    assert_eq!(count(&report, "launches"), 3);
    // What it could not take away any more, the next run does.
    finish(gputrace().args(["run", "-o"]).arg(folder.join("next")).args(["--", "true"])).expect_code(0);
    assert!(!session.exists(), "{} was left behind", session.display());
}

/// The folder of the session that a program was started in.
fn session_of(program: i32) -> std::path::PathBuf {
    let environment = std::fs::read_to_string(format!("/proc/{program}/environ")).unwrap();
    let socket = environment.split('\0').find_map(|line| line.strip_prefix("GPUTRACE_SESSION=")).unwrap();
    let folder = std::path::Path::new(socket).parent().unwrap();
    assert!(folder.is_dir(), "{socket}");
    folder.to_path_buf()
}

fn only_child_of(pid: u32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().parse().unwrap_or_else(|error| panic!("{children:?}: {error}"))
}

#[test]
fn program_keeps_the_signals_that_it_was_started_with() {
    let program = compiled("surroundings", Link::Nothing);
    let script = "trap '' INT PIPE USR1; exec \"$@\"";
    let lines = |command: &mut Command| {
        tool::clean(command);
        let seen = finish(command).expect_code(0).stdout;
        seen.lines().filter(|line| line.starts_with("Sig")).map(without_libc_s_own).collect::<Vec<_>>()
    };
    let alone = lines(Command::new("sh").args(["-c", script, "sh"]).arg(&program));
    let folder = Folder::new();
    let mut traced = Command::new("sh");
    traced.args(["-c", script, "sh", env!("CARGO_BIN_EXE_gputrace"), "run", "-o"]);
    assert_eq!(lines(traced.arg(folder.join("out")).arg("--").arg(&program)), alone);
    let plain = lines(&mut Command::new(&program));
    let mut traced = gputrace();
    traced.args(["run", "-o"]).arg(folder.join("out2")).arg("--").arg(&program);
    assert_eq!(lines(&mut traced), plain);
}

/// Signals 32 and 33 are the C library's: it sets them as it likes when a thread is made.
fn without_libc_s_own(line: &str) -> String {
    let (name, mask) = line.split_once(":\t").unwrap();
    let mask = u64::from_str_radix(mask, 16).unwrap() & !(0b11 << 31);
    format!("{name} {mask:x}")
}
