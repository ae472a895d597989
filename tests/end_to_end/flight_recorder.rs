//! `--flight-recorder`: only the last seconds are kept, and each reason to write them writes them.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, ctl, dumps, eventually};
use crate::harness::tool::{self, bare, calls, count, dropped, gputrace, run_command, run_with};

const FILES: [&str; 5] = ["trace.gputrace", "flame.folded", "flame.svg", "flame-idle.svg", "summary.txt"];
/// What is kept beyond the second that is asked for is what was gathered with its first event: a
/// tenth of a second, and as much more as a collector that gets no processor is late.
const SPAN_MAX_NS: u64 = 1_800_000_000;

fn report(folder: &Path) -> Value {
    tool::report(&[folder.join("trace.gputrace")])
}

/// Expects the last second of a `flight` that launched so many in all, and that reason.
#[track_caller]
fn is_the_last_second(folder: &Path, reason: &str, launched: Option<u64>) -> Value {
    for name in FILES {
        assert!(folder.join(name).is_file(), "{} is missing", folder.join(name).display());
    }
    let report = report(folder);
    let excerpt = &report["excerpts"][0];
    assert_eq!(excerpt["window_ns"], 1_000_000_000, "{report:#}");
    assert_eq!(excerpt["reason"], reason, "{report:#}");
    let span_ns = count(excerpt, "span_ns");
    assert!((500_000_000..=SPAN_MAX_NS).contains(&span_ns), "{span_ns}");
    // All hundred markers were in the first second, and what is left out is counted.
    assert_eq!(calls(&report, "first_kernel"), 0, "{report:#}");
    assert!(calls(&report, "second_kernel") > 0, "{report:#}");
    let left_out = count(&excerpt["left_out"], "launches");
    assert!(left_out >= 100, "{report:#}");
    if let Some(launched) = launched {
        assert_eq!(count(&report, "launches") + left_out, launched, "{report:#}");
        assert_eq!(dropped(&report), 0, "{report:#}");
    }
    let summary = fs::read_to_string(folder.join("summary.txt")).unwrap();
    assert!(summary.contains("\nExcerpt    the last 1.00 s of "), "{summary}");
    assert!(summary.contains(&format!("reason: {reason};")), "{summary}");
    report
}

#[test]
fn outputs_at_exit_hold_the_last_seconds_only() {
    let traced = run_with(&["--flight-recorder", "1"], compiled("flight", Link::Driver)).arg("end").succeed();
    let launched = traced.ended.stdout.trim().parse().unwrap();
    is_the_last_second(&traced.output, "exit", Some(launched));
    assert!(dumps(&traced.output).is_empty());
}

#[test]
fn crash_is_written_at_once_with_the_signals_name() {
    let program = compiled("flight", Link::Driver);
    let traced = run_with(&["--flight-recorder", "1"], program).arg("crash").go();
    assert_eq!(traced.ended.signal(), Some(libc::SIGSEGV), "{}", traced.ended.stderr);
    let launched: u64 = traced.ended.stdout.trim().parse().unwrap();
    let written = dumps(&traced.output);
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(written[0].to_string_lossy().ends_with("-001-crash"), "{written:?}");
    // What CUPTI had not delivered is lost with the program; launches are all there.
    for folder in [&written[0], &traced.output] {
        let report = is_the_last_second(folder, "crash (SIGSEGV)", None);
        let left_out = count(&report["excerpts"][0]["left_out"], "launches");
        assert_eq!(count(&report, "launches") + left_out, launched, "{report:#}");
    }
    let said = format!("gputrace: wrote the last 1 s to {}: crash (SIGSEGV)\n", written[0].display());
    assert!(traced.ended.stderr.contains(&said), "{}", traced.ended.stderr);
}

/// A worker dies and the others go on: its dump is there, and the session ends as an exit.
#[test]
fn crash_of_one_process_of_several_is_written_too() {
    let script = format!("{0} crash 0.2; {0} end 0.2", compiled("flight", Link::Driver).display());
    let traced = run_with(&["--flight-recorder", "10"], "sh").arg("-c").arg(script).succeed();
    let written = dumps(&traced.output);
    assert_eq!(written.len(), 1, "{written:?}");
    let (dump, end) = (report(&written[0]), report(&traced.output));
    // Its parent is not ours, and may have taken what it died of.
    let reason = dump["excerpts"][0]["reason"].as_str().unwrap();
    assert!(["crash", "crash (SIGSEGV)"].contains(&reason), "{reason}");
    assert_eq!(calls(&dump, "first_kernel"), 100);
    assert_eq!(end["excerpts"][0]["reason"], "exit");
    assert_eq!(calls(&end, "first_kernel"), 200);
}

#[test]
fn program_that_leaves_without_a_word_has_not_crashed() {
    let program = compiled("ending", Link::Driver);
    for how in ["return", "_exit"] {
        let traced = run_with(&["--flight-recorder", "5"], &program).arg(how).go().expect_code(5);
        assert_eq!(dumps(&traced.output), Vec::<std::path::PathBuf>::new(), "{how}");
        assert_eq!(report(&traced.output)["excerpts"][0]["reason"], "exit", "{how}");
    }
}

#[test]
fn signal_writes_while_the_program_goes_on() {
    let folder = Folder::new();
    let options = ["--flight-recorder", "1"];
    let mut session = Session::run(&folder, &options, compiled("flight", Link::Driver), &["wait"]);
    let launched = session.line().parse().unwrap();
    for number in 1..=2 {
        session.send(libc::SIGUSR2);
        let written = eventually("a dump", || {
            let written = dumps(&folder.join("out"));
            (written.len() == number).then_some(written)
        });
        assert!(written[number - 1].to_string_lossy().ends_with(&format!("-00{number}-signal")));
        is_the_last_second(&written[number - 1], "signal", Some(launched));
    }
    let (status, said) = session.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(said.matches(": signal\n").count(), 2, "{said}");
    is_the_last_second(&folder.join("out"), "exit", Some(launched));
}

#[test]
fn dump_asked_for_by_ctl_is_whole_when_its_path_is_printed() {
    let folder = Folder::new();
    let options = ["--flight-recorder", "1"];
    let mut session = Session::run(&folder, &options, compiled("flight", Link::Driver), &["wait"]);
    let launched = session.line().parse().unwrap();
    // By either process, and for programs too.
    let first = ctl(session.pid(), &["dump"]).expect_code(0).stdout;
    let second = ctl(session.program(), &["dump", "--json"]).expect_code(0).stdout;
    let second: Value = serde_json::from_str(&second).unwrap();
    let written = dumps(&folder.path().canonicalize().unwrap().join("out"));
    assert_eq!(written, [Path::new(first.trim_end()), Path::new(second["dump"].as_str().unwrap())]);
    for dump in &written {
        is_the_last_second(dump, "asked", Some(launched));
    }
    assert_eq!(session.end().0.code(), Some(0));
}

#[test]
fn newest_dumps_stay_and_none_is_ever_half_there() {
    let folder = Folder::new();
    let options = ["--flight-recorder", "5"];
    let mut session = Session::run(&folder, &options, compiled("flight", Link::Driver), &["wait", "0"]);
    session.line();
    let dump = || ctl(session.pid(), &["dump"]).expect_code(0).stdout.trim_end().to_owned();
    let printed: Vec<String> = (0..10).map(|_| dump()).collect();
    let out = folder.path().canonicalize().unwrap().join("out");
    let written: Vec<_> = dumps(&out).iter().map(|path| path.display().to_string()).collect();
    assert_eq!(written, printed[2..]);
    let hidden = fs::read_dir(&out)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
    assert_eq!(hidden.count(), 0);
    assert_eq!(session.end().0.code(), Some(0));
}

#[test]
fn variable_sets_a_flight_recorder_with_auto_collect() {
    let traced = bare("flight").arg("end").env("GPUTRACE_FLIGHT_RECORDER", "1").succeed();
    let launched = traced.ended.stdout.trim().parse().unwrap();
    is_the_last_second(&traced.output, "exit", Some(launched));
    // A program that crashes has nobody to wait for: its collector ends after it.
    let traced = bare("flight").arg("crash").env("GPUTRACE_FLIGHT_RECORDER", "1").go();
    assert_eq!(traced.ended.signal(), Some(libc::SIGSEGV));
    eventually("its outputs", || traced.output.join("summary.txt").is_file().then_some(()));
    let written = dumps(&traced.output);
    assert_eq!(written.len(), 1, "{written:?}");
    let reason = report(&written[0])["excerpts"][0]["reason"].as_str().unwrap().to_owned();
    assert!(["crash", "crash (SIGSEGV)"].contains(&reason.as_str()), "{reason}");
    is_the_last_second(&written[0], &reason, None);
}

/// The option goes before the variable, and can take it back.
#[test]
fn option_goes_before_the_variable() {
    let program = compiled("basic", Link::Driver);
    for (options, variable, kept_s) in [
        (&[][..], "7", Some(7)),
        (&["--flight-recorder=3"], "7", Some(3)),
        (&["--flight-recorder=off"], "7", None),
    ] {
        let traced = run_with(options, &program).env("GPUTRACE_FLIGHT_RECORDER", variable).succeed();
        let window_ns = traced.report()["excerpts"][0]["window_ns"].as_u64();
        assert_eq!(window_ns, kept_s.map(|seconds: u64| seconds * 1_000_000_000), "{options:?}");
        assert_eq!(count(&traced.report(), "launches"), 10);
    }
}

#[test]
fn length_that_is_none_is_an_error_before_anything_starts() {
    let folder = Folder::new();
    let (mark, listen) = (folder.join("mark"), folder.join("listen"));
    for value in ["0", "-1", "5s", "nan", "1e9"] {
        let option = format!("--flight-recorder={value}");
        let why = "seconds are a number from 0.1 to 86400, or off";
        let mut commands = [gputrace(), gputrace(), gputrace(), gputrace()];
        commands[0].args(["run", &option, "--", "touch"]).arg(&mark);
        commands[1].args(["run", "--", "touch"]).arg(&mark).env("GPUTRACE_FLIGHT_RECORDER", value);
        commands[2].arg("collect").arg(&option).arg("--listen").arg(&listen);
        commands[3].arg("collect").arg("--listen").arg(&listen).env("GPUTRACE_FLIGHT_RECORDER", value);
        for command in &mut commands {
            let ended = finish(command.current_dir(folder.path())).expect_code(2);
            assert!(ended.stderr.contains(why) && ended.stderr.contains(value), "{}", ended.stderr);
        }
        let traced = bare("basic").env("GPUTRACE_FLIGHT_RECORDER", value).go().expect_code(0);
        assert!(traced.ended.stderr.contains(why), "{}", traced.ended.stderr);
        assert!(!mark.exists() && !traced.output.exists());
    }
}

#[test]
fn sigusr2_is_the_program_s_without_a_flight_recorder() {
    // Without a flight recorder it is the program's, and ends who does not know it.
    let folder = Folder::new();
    let mut session = Session::run(&folder, &[], compiled("flight", Link::Driver), &["wait", "0"]);
    session.line();
    session.send(libc::SIGUSR2);
    let status = eventually("its end", || session.process.try_wait().unwrap());
    assert_eq!(status.signal(), Some(libc::SIGUSR2));
    // With one, the program finds it as we found it: not caught, not ignored, not blocked.
    let killed = run_with(&["--flight-recorder", "1"], "sh").arg("-c").arg("kill -USR2 $$").go();
    assert_eq!(killed.ended.signal(), Some(libc::SIGUSR2), "{}", killed.ended.stderr);
    let lines = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status";
    let with = run_with(&["--flight-recorder", "1"], "sh").arg("-c").arg(lines).succeed();
    let without = run_command("sh").arg("-c").arg(lines).succeed();
    assert_eq!(with.ended.stdout, without.ended.stdout);
}

/// Two million launches with their records, of which the last second is kept.
#[test]
fn memory_stays_bounded_under_a_flood() {
    const LAUNCHES: u64 = 2_000_000;
    /// Twice what events may take, for a dump under way, and the tool itself.
    const RESIDENT_MAX_BYTES: u64 = 200 << 20;
    let folder = Folder::new();
    let mut command = gputrace();
    command.args(["run", "--simulate", "--flight-recorder=1", "-o"]).arg(folder.join("out")).arg("--");
    command.arg(compiled("on_demand", Link::Driver)).env("GPUTRACE_SIM_PACE", "off");
    let mut session = Session::start(&mut command);
    for part in 1..=4 {
        session.write(&format!("{}\n", LAUNCHES / 4));
        assert_eq!(session.line(), (LAUNCHES / 4).to_string());
        let status = ctl(session.pid(), &["status", "--json"]).expect_code(0).stdout;
        let status: Value = serde_json::from_str(&status).unwrap();
        let recording = &status["recording"];
        assert!(count(recording, "held_bytes") <= count(recording, "held_bytes_max"), "{part}: {status:#}");
        assert!(count(&status, "resident_bytes") <= RESIDENT_MAX_BYTES, "{part}: {status:#}");
    }
    let peak = fs::read_to_string(format!("/proc/{}/status", session.pid())).unwrap();
    let peak = peak.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kib * 1024 <= RESIDENT_MAX_BYTES, "{peak_kib} KiB");
    let (status, said) = session.end();
    assert_eq!(status.code(), Some(0), "{said}");
    let report = report(&folder.join("out"));
    let left_out = count(&report["excerpts"][0]["left_out"], "launches");
    let accounted = count(&report, "launches") + left_out;
    // What was dropped is of any kind: records too.
    assert!((LAUNCHES.saturating_sub(dropped(&report))..=LAUNCHES).contains(&accounted), "{report:#}");
    assert!(left_out > 0, "{report:#}");
}
