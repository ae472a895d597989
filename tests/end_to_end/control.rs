//! `gputrace ctl`: how a running session goes, who may ask, and what is said where there is none.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::harness::back_end::{BackEnd, Reply};
use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, ctl, dumps, eventually};
use crate::harness::tool::{self, count, gputrace};
use crate::harness::users::{ATTACKER, SharedFolder, VICTIM, as_user};

fn flight() -> PathBuf {
    compiled("flight", Link::Driver)
}

#[track_caller]
fn status(pid: u32) -> Value {
    serde_json::from_str(&ctl(pid, &["status", "--json"]).expect_code(0).stdout).unwrap()
}

/// The same of a program, which a collector hears of a moment after it started.
#[track_caller]
fn status_of_new(program: u32) -> Value {
    let ask = || Some(ctl(program, &["status", "--json"])).filter(|asked| asked.code() == Some(0));
    serde_json::from_str(&eventually("its session", ask).stdout).unwrap()
}

/// The control socket of a session, whose folder lies in that one.
#[track_caller]
fn socket(base: &Path, pid: u32) -> PathBuf {
    let prefix = format!("gputrace-{pid}-");
    let entries = fs::read_dir(base).unwrap().flatten();
    let mut found = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    found.next().unwrap_or_else(|| panic!("no session of {pid} in {}", base.display())).path().join("control")
}

#[test]
fn session_reports_its_status_by_its_own_or_its_program_s_number() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &[], flight(), &["wait", "0.1"]);
    let launched: u64 = session.line().parse().unwrap();
    // All of them at once, though it began a fraction of a second ago.
    let status = status(session.pid());
    assert_eq!(count(&status["recording"], "launches"), launched, "{status:#}");
    assert_eq!(count(&status, "pid"), u64::from(session.pid()));
    assert_eq!(status["kind"], "run");
    assert_eq!(status["command"].as_array().unwrap().len(), 3);
    let output = folder.path().canonicalize().unwrap().join("out");
    assert_eq!(status["output"].as_str().unwrap(), output.to_str().unwrap());
    assert!(count(&status, "resident_bytes") > 1 << 20, "{status:#}");
    let recording = &status["recording"];
    assert_eq!(recording["flight_recorder_seconds"], Value::Null);
    assert_eq!((count(recording, "running"), count(recording, "ended")), (1, 0));
    assert_eq!(recording["dropped"], serde_json::json!({}));
    assert_eq!(count(&recording["processes"][0], "pid"), u64::from(session.program()));
    // The same for people, by the program's number.
    let text = ctl(session.program(), &["status"]).expect_code(0).stdout;
    for line in [
        format!("Session    gputrace run, process {}\n", session.pid()),
        format!("Output     {}\n", output.display()),
        "Keeps      everything\n".to_owned(),
        format!("Recorded   {launched} launches, "),
        "Lost       nothing\n".to_owned(),
        "Memory     ".to_owned(),
        format!("Processes  1 running ({}), 0 ended\n", session.program()),
    ] {
        assert!(text.contains(&line), "{line:?} is missing:\n{text}");
    }
    assert_eq!(session.end().0.code(), Some(0));
}

/// A program that makes no call any more has a rate of 0, with and without somebody who asks meanwhile.
#[test]
fn rate_ends_when_nothing_comes() {
    for options in [&[][..], &["--flight-recorder=60"]] {
        let folder = Folder::new();
        let mut session = Session::run(&folder, options, flight(), &["wait", "0.5"]);
        session.line();
        let rate = || status(session.pid())["recording"]["events_per_second"].as_f64().unwrap();
        assert!(rate() > 10.0);
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!((rate(), rate()), (0.0, 0.0));
        assert_eq!(session.end().0.code(), Some(0));
    }
}

#[test]
fn exited_process_is_not_listed_as_running() {
    for options in [&[][..], &["--flight-recorder=60"]] {
        let folder = Folder::new();
        let script = format!("{} wait 0 </dev/null; echo ended; read line", flight().display());
        let mut session = Session::run(&folder, options, "sh", &["-c", &script]);
        assert_eq!((session.line().as_str(), session.line().as_str()), ("100", "ended"));
        let recording = &status(session.pid())["recording"];
        assert_eq!((count(recording, "running"), count(recording, "ended")), (0, 1), "{recording:#}");
        assert_eq!(count(recording, "launches"), 100);
        session.end();
    }
}

/// The session answers while it waits for a back end, when its programs have ended.
#[test]
fn running_processes_are_none_at_the_end() {
    let folder = Folder::new();
    let back_end = BackEnd::new(&[Reply::Hangs]);
    let mut session = Session::run(&folder, &["--otlp", &back_end.url()], flight(), &["wait", "0"]);
    let program = {
        session.line();
        session.program()
    };
    // SAFETY: plain numbers; the process is this test's and waits for its input.
    assert_eq!(unsafe { libc::kill(program.cast_signed(), libc::SIGTERM) }, 0);
    let out = folder.join("out");
    eventually("the drawing", || out.join("flame.svg").exists().then_some(()));
    let recording = &status(session.pid())["recording"];
    assert_eq!((count(recording, "running"), count(recording, "ended")), (0, 1), "{recording:#}");
    session.end();
}

#[test]
fn flight_recorder_reports_what_it_keeps_and_how_fast_it_fills() {
    let folder = Folder::new();
    let session = Session::run(&folder, &["--flight-recorder", "1"], flight(), &["end", "30"]);
    let status = eventually("something is left out, and a rate", || {
        let asked = ctl(session.pid(), &["status", "--json"]);
        let status: Value = serde_json::from_str(&asked.stdout).ok()?;
        let recording = &status["recording"];
        let fills = recording["events_per_second"].as_f64()? > 10.0;
        (fills && recording["left_out_entries"].as_u64()? > 100).then_some(status)
    });
    let recording = &status["recording"];
    assert_eq!(recording["flight_recorder_seconds"], 1.0);
    assert_eq!(recording["held_bytes_max"], 64 << 20);
    assert!(count(recording, "held_bytes") > 0);
    let text = ctl(session.pid(), &["status"]).expect_code(0).stdout;
    assert!(text.contains("Keeps      the last 1 s: ") && text.contains(" of at most 64.0 MiB, "), "{text}");
}

#[test]
fn dump_where_everything_is_kept_is_refused() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &[], flight(), &["wait", "0"]);
    session.line();
    let refused = ctl(session.pid(), &["dump"]).expect_code(1);
    let expected = format!(
        "gputrace: the session of process {} wrote no dump: it has no flight recorder; start it with \
         --flight-recorder\n",
        session.pid()
    );
    assert_eq!((refused.stdout.as_str(), refused.stderr), ("", expected));
    assert!(dumps(&folder.join("out")).is_empty());
    assert_eq!(session.end().0.code(), Some(0));
}

#[test]
fn process_without_a_session_is_an_error_that_names_what_was_searched() {
    let own = std::process::id();
    let refused = ctl(own, &["status"]).expect_code(66);
    let begin =
        format!("gputrace: process {own} belongs to no session: there is no folder gputrace-{own}-… in ");
    assert!(refused.stderr.starts_with(&begin), "{}", refused.stderr);
    assert!(refused.stderr.contains("/tmp") && refused.stderr.contains("\n  hint: "), "{}", refused.stderr);
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let refused = ctl(gone.id(), &["dump"]).expect_code(66);
    assert_eq!(refused.stderr, format!("gputrace: there is no process {}\n", gone.id()));
    for words in [&["0", "status"][..], &["7"], &["7", "halt"]] {
        finish(gputrace().arg("ctl").args(words)).expect_code(2);
    }
}

#[test]
fn daemon_answers_too() {
    let folder = Folder::new();
    let mut command = gputrace();
    command.args(["collect", "--flight-recorder", "5", "--listen"]).arg(folder.join("session"));
    let mut collector = Session::start(command.arg("-o").arg(folder.join("out")));
    let line = collector.line();
    let (_, joins) = line.split_once('=').unwrap();
    let mut command = Command::new(flight());
    tool::clean(&mut command);
    command.args(["wait", "0"]).env("LD_PRELOAD", tool::library()).env("GPUTRACE_SESSION", joins);
    let mut program = Session::start(command.env("LD_LIBRARY_PATH", tool::simulated_folder()));
    assert_eq!(program.line(), "100");
    let status = status_of_new(program.pid());
    assert_eq!((count(&status, "pid"), &status["kind"]), (u64::from(collector.pid()), &"collect".into()));
    ctl(program.pid(), &["dump"]).expect_code(0);
    collector.send(libc::SIGUSR2);
    let written =
        eventually("two dumps", || Some(dumps(&folder.join("out"))).filter(|dumps| dumps.len() == 2));
    for dump in written {
        assert_eq!(count(&tool::report(&[dump.join("trace.gputrace")]), "launches"), 100);
    }
    assert_eq!(program.end().0.code(), Some(0));
    collector.send(libc::SIGTERM);
    let (status, said) = collector.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("Excerpt    the last 5.00 s of "), "{said}");
}

#[test]
fn auto_collected_program_is_found_by_its_own_number() {
    let folder = Folder::new();
    let mut command = Command::new(flight());
    tool::clean(&mut command);
    command.args(["wait", "0"]).env("LD_PRELOAD", tool::library());
    command.env("LD_LIBRARY_PATH", tool::simulated_folder());
    command.env("GPUTRACE_FLIGHT_RECORDER", "5").env("GPUTRACE_OUT", folder.join("out"));
    let mut program = Session::start(&mut command);
    assert_eq!(program.line(), "100");
    assert_eq!(status_of_new(program.pid())["kind"], "collect");
    let written = PathBuf::from(ctl(program.pid(), &["dump"]).expect_code(0).stdout.trim_end());
    assert_eq!(count(&tool::report(&[written.join("trace.gputrace")]), "launches"), 100);
    let (status, said) = program.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("gputrace: dumped 1 before the end, the newest to "), "{said}");
}

/// Nobody who talks nonsense, or not at all, keeps others from being answered or the run from ending.
#[test]
fn nonsense_on_the_control_socket_harms_nobody() {
    let folder = Folder::new();
    let base = folder.path().canonicalize().unwrap();
    let mut command = gputrace();
    command.args(["run", "--simulate", "--flight-recorder=5", "-o"]).arg(base.join("out")).arg("--");
    command.arg(flight()).args(["wait", "0"]).env("XDG_RUNTIME_DIR", "").env("TMPDIR", &base);
    let mut session = Session::start(&mut command);
    session.line();
    let path = socket(&base, session.pid());
    let silent: Vec<_> = (0..4).map(|_| UnixStream::connect(&path).unwrap()).collect();
    for question in [&b"\n"[..], b"stat", b"\xff\xfe\n", &[b'x'; 100_000], b"dump dump\n"] {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // It may have heard enough before all is said.
        let _ = stream.write_all(question);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(!answer.contains("dump\":") && !answer.contains("pid"), "{answer}");
    }
    let asked = finish(gputrace().args(["ctl", &session.pid().to_string(), "status"]).env("TMPDIR", &base));
    asked.expect_code(0);
    let (status, said) = session.end();
    assert_eq!(status.code(), Some(0), "{said}");
    drop(silent);
    assert!(!path.exists() && dumps(&base.join("out")).is_empty());
}

#[test]
fn control_socket_is_closed_to_other_users() {
    let Some(shared) = SharedFolder::new("control_socket_is_closed_to_other_users") else { return };
    // Where everybody's sessions are, without a variable that says another place.
    let (base, out) = (Path::new("/tmp"), shared.folder("out", VICTIM, 0o700));
    let mut command = shared.gputrace(VICTIM);
    command.args(["run", "--simulate", "--flight-recorder=5", "-o"]).arg(&out).arg("--");
    command.arg(shared.program("flight")).args(["wait", "0"]);
    let mut session = Session::start(&mut command);
    assert_eq!(session.line(), "100");
    let pid = session.pid().to_string();
    let program = session.program().to_string();
    for user in [ATTACKER, 0] {
        let asks = [
            (&pid, "status", "belongs to another user\n"),
            (&pid, "dump", "belongs to another user\n"),
            (&program, "dump", "belongs to no session: "),
        ];
        for (number, question, why) in asks {
            let refused = finish(shared.gputrace(user).args(["ctl", number, question])).expect_code(66);
            assert!(refused.stdout.is_empty(), "{}", refused.stdout);
            let begin =
                format!("gputrace: {}process {number} ", if number == &pid { "the session of " } else { "" });
            assert!(refused.stderr.starts_with(&begin), "{}", refused.stderr);
            assert!(refused.stderr.contains(why), "{}", refused.stderr);
        }
    }
    // Root can enter the folder; whoever is not the user is not answered all the same. Nobody else can.
    let path = socket(base, session.pid());
    let mut stream = UnixStream::connect(&path).unwrap();
    let _ = stream.write_all(b"dump\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer, b"");
    as_user(ATTACKER, move || UnixStream::connect(&path).map(drop)).expect_err("the folder is private");
    assert!(dumps(&out).is_empty());
    // The user itself is.
    let asked = finish(shared.gputrace(VICTIM).args(["ctl", &pid, "dump"])).expect_code(0);
    assert_eq!(asked.stdout.trim_end(), dumps(&out)[0].to_str().unwrap());
    assert_eq!(session.end().0.code(), Some(0));
}

/// What a pipe holds back is not the session's affair: the answer goes to who asked, and `ctl` ends.
#[test]
fn reader_that_went_away_is_no_error() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &[], flight(), &["wait", "0"]);
    session.line();
    let mut ask = gputrace();
    ask.args(["ctl", &session.pid().to_string(), "status"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut ask = ask.spawn().unwrap();
    drop(ask.stdout.take());
    assert_eq!(ask.wait().unwrap().code(), Some(0));
    assert_eq!(session.end().0.code(), Some(0));
}

/// Without descriptors nobody can be accepted, and who waits keeps the socket readable.
#[test]
fn session_without_descriptors_waits_and_answers_once_there_are_some() {
    let folder = Folder::new();
    let mut command = gputrace();
    command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).arg("--").arg(flight());
    let base = folder.join("runtime");
    fs::create_dir(&base).unwrap();
    fs::set_permissions(&base, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut session = Session::start(command.args(["wait", "0.1"]).env("XDG_RUNTIME_DIR", &base));
    session.line();
    let pid = session.pid();
    let before = descriptor_limit(pid, None);
    descriptor_limit(pid, Some(libc::rlimit { rlim_cur: 3, ..before }));
    let socket = socket(&base, pid);
    let waiting = UnixStream::connect(&socket).unwrap();
    let (used, begin) = (processor_ticks(pid), std::time::Instant::now());
    std::thread::sleep(Duration::from_secs(3));
    let (used, passed) = (processor_ticks(pid) - used, begin.elapsed());
    // A thread that does nothing but ask has a good part of one processor, even of a busy machine.
    let most = passed.as_secs_f64() * TICKS_A_SECOND * 0.1;
    assert!((used as f64) < most, "{used} ticks in {passed:?}");
    descriptor_limit(pid, Some(before));
    drop(waiting);
    let answer = eventually("an answer", || {
        let mut asks = UnixStream::connect(&socket).ok()?;
        asks.write_all(b"status\n").ok()?;
        let mut answer = String::new();
        asks.read_to_string(&mut answer).ok()?;
        serde_json::from_str::<Value>(&answer).ok()
    });
    assert_eq!(count(&answer, "pid"), u64::from(pid));
    assert_eq!(session.end().0.code(), Some(0));
}

/// Of Linux on every machine that this runs on.
const TICKS_A_SECOND: f64 = 100.0;

/// How much of a processor a process has had, in the user's and the kernel's name.
fn processor_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Sets a process's limit of descriptors, if there is one to set. Returns the one before.
fn descriptor_limit(pid: u32, limit: Option<libc::rlimit>) -> libc::rlimit {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let new = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both limits live through the call; the process is a child of this test.
    let done = unsafe { libc::prlimit(pid.cast_signed(), libc::RLIMIT_NOFILE, new, &raw mut before) };
    assert_eq!(done, 0);
    before
}
