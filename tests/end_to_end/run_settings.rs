//! `gputrace ctl … set`: what is recorded of calls changes while the program runs, and nothing is lost by it;
//! and `ctl … status`, which says what is in force.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use gputrace_wire::definition::kind;
use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::recorded::Recorded;
use crate::harness::session::{Session, ctl, eventually};
use crate::harness::tool::{self, count, gputrace};
use crate::python_stacks::interpreters;
use crate::torch_stacks::engine;

const A_LINE: usize = 100;

#[track_caller]
fn set(session: &Session, change: &str) -> Value {
    let answer = ctl(session.pid(), &["set", change, "--json"]).expect_code(0);
    let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(count(&answer, "processes"), 1, "{answer}");
    answer
}

#[track_caller]
fn status(session: &Session) -> Value {
    let asked = ctl(session.pid(), &["status", "--json"]).expect_code(0);
    serde_json::from_str(&asked.stdout).unwrap()
}

/// The line of the text status with that label.
#[track_caller]
fn status_line(session: &Session, label: &str) -> String {
    let text = ctl(session.pid(), &["status"]).expect_code(0).stdout;
    text.lines()
        .find_map(|line| line.strip_prefix(label))
        .unwrap_or_else(|| panic!("{text}"))
        .trim()
        .to_owned()
}

#[track_caller]
fn report(folder: &Folder) -> Value {
    let report = finish(gputrace().args(["report", "--json"]).arg(folder.join("out"))).expect_code(0);
    serde_json::from_str(&report.stdout).unwrap()
}

/// Counts of calls in the report: launches, graph launches, copies, fills, waits.
fn recorded(report: &Value) -> Vec<u64> {
    let calls = |class: &str| {
        let found = report["call_classes"].as_array().unwrap().iter().find(|call| call["class"] == class);
        found.map_or(0, |call| call["calls"].as_u64().unwrap())
    };
    vec![
        count(report, "launches"),
        count(report, "graph_launches"),
        calls("copy"),
        calls("fill"),
        calls("wait"),
    ]
}

/// Two people, or a script and a person: both are answered once theirs is in force.
#[test]
fn changes_at_the_same_time_are_both_in_force() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &[], compiled("toggled", Link::Driver), &[]);
    assert_eq!(session.line(), "ready");
    let pid = session.pid();
    for _ in 0..3 {
        let times = std::thread::spawn(move || ctl(pid, &["set", "device-times=off"]));
        sleep(Duration::from_millis(20));
        let stacks = ctl(pid, &["set", "stacks=native"]);
        for (ended, said) in [(times.join().unwrap(), "device-times=off, "), (stacks, "stacks=native, ")] {
            assert!(ended.expect_code(0).stdout.starts_with(said));
        }
        let settings = status_line(&session, "Settings");
        assert!(settings.contains("stacks=native") && settings.contains("device-times=off"), "{settings}");
        set(&session, "device-times=on");
        set(&session, "stacks=off");
    }
    session.release();
    session.line();
    assert!(session.end().0.success());
}

/// Four threads launch, copy and replay graphs while all settings change, in the middle of pauses too.
#[test]
fn every_call_is_known_once_while_settings_change_under_threads() {
    for graph_times in ["node", "graph"] {
        let folder = Folder::new();
        let options = ["--graph-times", graph_times];
        let mut session = Session::run(&folder, &options, compiled("toggled", Link::Driver), &[]);
        assert_eq!(session.line(), "ready");
        for round in 0..4 {
            set(&session, "device-times=off");
            set(&session, if round % 2 == 0 { "stacks=native" } else { "stacks=python,native" });
            sleep(Duration::from_millis(30));
            if round == 1 {
                ctl(session.pid(), &["stop"]).expect_code(0);
                set(&session, "device-times=on");
                set(&session, "device-times=off");
                ctl(session.pid(), &["start"]).expect_code(0);
            }
            set(&session, "device-times=on");
            set(&session, "stacks=off");
            sleep(Duration::from_millis(30));
        }
        session.release();
        let own: Vec<u64> = session.line().split(' ').map(|number| number.parse().unwrap()).collect();
        assert!(session.end().0.success());
        let report = report(&folder);
        let paused = ["launches", "graph_launches", "copies", "memsets", "waits"]
            .map(|what| count(&report["recording"], &format!("paused_{what}")));
        let sums: Vec<u64> = recorded(&report).iter().zip(paused).map(|(one, other)| one + other).collect();
        assert_eq!(sums, own, "{paused:?}");
        assert_eq!(count(&report, "device_only"), 0);
        assert_eq!(report["dropped"], serde_json::json!({}));
        assert_eq!(report["complete"], true, "{report:#}");
        // Each operation has its device time, or was executed while there were none.
        let switched = &report["switched_times"];
        let (executed, timed) = (count(&report, "executed_operations"), count(&report, "timed_operations"));
        let off = count(switched, "switched_off_operations");
        assert_eq!((executed, count(&report, "untimed_operations")), (timed + off, 0), "{switched:#}");
        assert!(timed > 0 && off > 0, "{timed} {off}");
        assert!(switched["intervals"].as_array().unwrap().len() >= 5, "{switched:#}");
        let (time, wall) = (count(switched, "timed_ns"), count(&report, "wall_ns"));
        assert!(time > 0 && time < wall, "{time} {wall}");
        let summary = std::fs::read_to_string(folder.join("out/summary.txt")).unwrap();
        assert!(summary.contains("; device times were on for "), "{summary}");
    }
}

/// What frames of the launches with such a grid are: `python`, `native`, `operator`.
fn frames(recorded: &Recorded, blocks: u32) -> BTreeSet<&'static str> {
    let stacks: Vec<u32> =
        recorded.launches.iter().filter(|(grid, _)| *grid == blocks).map(|(_, stack)| *stack).collect();
    assert_eq!(stacks.len(), A_LINE, "launches of {blocks} blocks");
    assert!(stacks.iter().all(|stack| *stack == stacks[0]), "one line made them: {stacks:?}");
    let Some(stack) = recorded.definitions.get(&stacks[0]) else { return BTreeSet::new() };
    let ids = stack.fields.as_chunks::<2>().0.iter().map(|[code, _]| *code as u32).filter(|id| *id != 0);
    let name = |id| match recorded.definitions[&id].kind {
        kind::CODE => "python",
        kind::NAME => "operator",
        _ => "native",
    };
    ids.map(name).collect()
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/switched.py")
}

/// Runs `switched.py`, and makes a change before each line of launches. Returns the frames of each line.
fn frames_after(python: &Path, options: &[&str], engine: Option<&Path>, changes: &[&str]) -> Vec<String> {
    let folder = Folder::new();
    let program = program();
    let arguments: Vec<&str> =
        [Some(&*program), engine].into_iter().flatten().map(|path| path.to_str().unwrap()).collect();
    let mut session = Session::run(&folder, options, python, &arguments);
    assert_eq!(session.line(), "ready");
    for (blocks, change) in (1..).zip(changes) {
        if !change.is_empty() {
            set(&session, change);
        }
        session.write(&format!("{blocks}\n"));
        assert_eq!(session.line(), "done");
    }
    assert!(session.end().0.success());
    let recorded = Recorded::of_file(&folder.join("out/trace.gputrace"));
    let found = (1..).zip(changes).map(|(blocks, _)| frames(&recorded, blocks));
    found.map(|frames| frames.into_iter().collect::<Vec<_>>().join(",")).collect()
}

#[test]
fn stacks_change_while_the_program_runs() {
    for (minor, python) in interpreters("run_settings::stacks_change_while_the_program_runs") {
        let changes =
            ["", "stacks=off", "stacks=native", "stacks=python,native", "stacks=python", "stacks=none"];
        let found = frames_after(&python, &[], None, &changes);
        assert_eq!(found, ["python", "", "native", "native,python", "python", ""], "3.{minor}");
        // Where there were none at the start.
        let found =
            frames_after(&python, &["--stacks", "none"], None, &["", "stacks=python", "stacks=native"]);
        assert_eq!(found, ["", "python", "native"], "3.{minor}");
    }
}

#[test]
fn operators_change_while_the_program_runs() {
    let found = interpreters("run_settings::operators_change_while_the_program_runs");
    let Some((_, python)) = found.last() else { return };
    let engine = engine(&[]);
    let changes = ["", "torch-ops=on", "torch-ops=on", "torch-ops=off", "stacks=off", "torch-ops=on"];
    let found = frames_after(python, &[], Some(&engine), &changes);
    assert_eq!(found, ["python", "operator,python", "operator,python", "python", "", "operator"]);
    let found = frames_after(python, &["--torch-ops"], Some(&engine), &["", "torch-ops=off", "torch-ops=on"]);
    assert_eq!(found, ["operator,python", "python", "operator,python"]);
}

#[test]
fn paused_session_observes_no_operators() {
    let Some((_, python)) = interpreters("run_settings::paused_session_observes_no_operators").pop() else {
        return;
    };
    let (program, engine) = (program(), engine(&[]));
    let arguments = [program.to_str().unwrap(), engine.to_str().unwrap()];
    let observers = |session: &mut Session| {
        session.write("observers\n");
        session.line().parse::<u32>().unwrap()
    };
    // Two: one for operators, one for ranges of the program.
    for (options, from_begin) in [
        (&["--torch-ops"][..], 2),
        (&["--torch-ops", "--start-paused"], 0),
        (&["--torch-ops", "--delay", "500"], 0),
        // A range may begin with any call, so that nothing can be put in in time.
        (&["--torch-ops", "--capture-range", "launches:1000-2000"], 2),
        // It is over with the first line of launches, below.
        (&["--torch-ops", "--capture-range", "launches:1-100"], 2),
    ] {
        let awaits_range = options.contains(&"launches:1000-2000");
        let folder = Folder::new();
        let mut session = Session::run(&folder, options, &python, &arguments);
        assert_eq!(session.line(), "ready");
        assert_eq!(observers(&mut session), from_begin, "{options:?}");
        for blocks in 1..=3 {
            ctl(session.pid(), &["start"]).expect_code(0);
            assert_eq!(observers(&mut session), 2, "{options:?}");
            session.write(&format!("{blocks}\n"));
            assert_eq!(session.line(), "done");
            ctl(session.pid(), &["stop"]).expect_code(0);
            if awaits_range {
                // Some turns of the service thread, in which they would go.
                sleep(Duration::from_millis(200));
                assert_eq!(observers(&mut session), 2, "{options:?}");
            } else {
                assert_eq!(observers(&mut session), 0, "{options:?}");
            }
        }
        set(&session, "torch-ops=off");
        set(&session, "torch-ops=on");
        assert_eq!(observers(&mut session), if awaits_range { 2 } else { 0 }, "{options:?}");
        ctl(session.pid(), &["start"]).expect_code(0);
        assert_eq!(observers(&mut session), 2, "{options:?}");
        set(&session, "torch-ops=off");
        ctl(session.pid(), &["start"]).expect_code(0);
        assert_eq!(observers(&mut session), 0, "{options:?}");
        assert!(session.end().0.success());
        let recorded = Recorded::of_file(&folder.join("out/trace.gputrace"));
        for blocks in 1..=3 {
            assert!(frames(&recorded, blocks).contains("operator"), "{options:?}");
        }
    }
}

#[test]
fn status_shows_the_settings_in_force() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &["--stacks", "python"], compiled("toggled", Link::Driver), &[]);
    assert_eq!(session.line(), "ready");
    let in_force = |expected: &str| {
        eventually(expected, || (status_line(&session, "Settings ") == expected).then_some(()));
    };
    in_force("stacks=python, device-times=on, torch-ops=off, memory=on, device-metrics=100ms");
    set(&session, "device-times=off");
    set(&session, "stacks=native");
    in_force("stacks=native, device-times=off, torch-ops=off, memory=on, device-metrics=100ms");
    let values = status(&session)["settings"].clone();
    assert_eq!((&values["stacks"], &values["device-times"]), (&"native".into(), &"off".into()));
    let text = ctl(session.pid(), &["set", "stacks=off"]).expect_code(0).stdout;
    assert!(text.starts_with("stacks=off, ") && text.ends_with(" s after the session's begin\n"), "{text}");
    assert!(session.end().0.success());
}

#[test]
fn what_cannot_be_set_is_refused_with_its_reason() {
    let folder = Folder::new();
    let mut session =
        Session::run(&folder, &["--device-times", "off"], compiled("toggled", Link::Driver), &[]);
    assert_eq!(session.line(), "ready");
    for (change, why) in [
        ("graph-times=node", "CUPTI crashes where it is switched while graphs exist"),
        ("colour=red", "the keys are stacks, device-times, torch-ops, memory, device-metrics"),
        ("device-times=5", "device-times=5: the values are on, off and windows"),
        ("stacks=nvtx", "NVTX ranges stay as the session began"),
    ] {
        let refused = ctl(session.pid(), &["set", change]).expect_code(2);
        assert!(refused.stdout.is_empty() && refused.stderr.contains(why), "{}", refused.stderr);
    }
    // It never had CUPTI.
    let refused = ctl(session.pid(), &["set", "device-times=on"]).expect_code(1);
    let program = session.program();
    assert!(
        refused.stderr.contains(&format!("process {program} cannot make this change")),
        "{}",
        refused.stderr
    );
    set(&session, "device-times=off");
    assert!(session.end().0.success());
    assert!(report(&folder)["switched_times"].is_null());
}

#[test]
fn status_says_whether_the_session_records_and_why() {
    let program = compiled("toggled", Link::Driver);
    for (options, state, why) in [
        (&[][..], "recording", None),
        (&["--start-paused"], "paused: it began paused, until gputrace ctl PID start", Some("start-paused")),
        (&["--delay", "500"], "paused: --delay is not over", Some("order")),
        (&["--delay", "0.1"], "recording: --delay is over", Some("order")),
        (&["--duration", "0.1"], "paused: --duration is over", Some("order")),
        (
            &["--capture-range", "cudaProfilerApi"],
            "paused: its capture range has not begun",
            Some("capture-range-awaited"),
        ),
        (
            &["--capture-range", "launches:1-2"],
            "paused: its capture ranges are over",
            Some("capture-ranges-over"),
        ),
    ] {
        let folder = Folder::new();
        let mut session = Session::run(&folder, options, &program, &[]);
        assert_eq!(session.line(), "ready");
        eventually(state, || (status_line(&session, "State ") == state).then_some(()));
        let found = &status(&session)["state"];
        assert_eq!(found["recording"], state.starts_with("recording"), "{found:#}");
        assert_eq!(found["processes"][0]["why"], serde_json::json!(why), "{found:#}");
        // An order is seen as soon as it is done.
        ctl(session.pid(), &["start"]).expect_code(0);
        ctl(session.pid(), &["stop"]).expect_code(0);
        let said = status_line(&session, "State ");
        assert!(said == "paused: by gputrace ctl" || said.contains("capture range"), "{said}");
        assert!(session.end().0.success());
    }
}

/// A daemon gives no order, so the program ends its delay by itself.
#[test]
fn delay_of_a_program_that_joins_a_daemon_ends() {
    let folder = Folder::new();
    let mut command = gputrace();
    command.args(["collect", "--listen"]).arg(folder.join("session"));
    let mut collector = Session::start(command.arg("-o").arg(folder.join("out")));
    let line = collector.line();
    let (_, joins) = line.split_once('=').unwrap();
    let start = |delay: &str| {
        let mut command = Command::new(compiled("toggled", Link::Driver));
        tool::clean(&mut command);
        command
            .env("LD_PRELOAD", tool::library())
            .env("GPUTRACE_SESSION", joins)
            .env("GPUTRACE_DELAY", delay);
        Session::start(command.env("LD_LIBRARY_PATH", tool::simulated_folder()))
    };
    let begin = Instant::now();
    let mut program = start("1.5");
    assert_eq!(program.line(), "ready");
    let state = |state: &str| {
        eventually(state, || {
            let asked = ctl(collector.pid(), &["status"]);
            asked.stdout.contains(&format!("State      {state}\n")).then_some(())
        });
    };
    state("paused: its GPUTRACE_DELAY is not over");
    state("recording");
    assert!(begin.elapsed() >= Duration::from_millis(1500), "{:?}", begin.elapsed());
    let own: u64 = {
        program.release();
        program.line().split(' ').next().unwrap().parse().unwrap()
    };
    assert!(program.end().0.success());
    // One that makes no sense is reported, and does not pause.
    let mut other = start("soon");
    assert_eq!(other.line(), "ready");
    state("recording");
    let (_, said) = other.end();
    assert!(said.contains("GPUTRACE_DELAY=soon: seconds are a number"), "{said}");
    collector.send(libc::SIGTERM);
    assert!(collector.end().0.success());
    let report = report(&folder);
    let (launches, paused) = (count(&report, "launches"), count(&report["recording"], "paused_launches"));
    assert!(launches > 0 && paused > 0 && launches + paused >= own, "{launches} {paused} {own}");
}

#[test]
fn senseless_variable_is_one_message_that_names_it() {
    let folder = Folder::new();
    for (variables, expected) in [
        (&[("GPUTRACE_CAPTURE_RANGE", "nvtx")][..], "gputrace: GPUTRACE_CAPTURE_RANGE=nvtx: a range is"),
        (
            &[("GPUTRACE_CAPTURE_RANGE_END", "soon"), ("GPUTRACE_CAPTURE_RANGE", "nvtx:a")],
            "gputrace: GPUTRACE_CAPTURE_RANGE_END=soon: ",
        ),
        (&[("GPUTRACE_DELAY", "soon")], "gputrace: GPUTRACE_DELAY=soon: "),
        (
            &[("GPUTRACE_CAPTURE_RANGE", "nvtx:a"), ("GPUTRACE_STACKS", "python")],
            "gputrace: GPUTRACE_CAPTURE_RANGE nvtx: and GPUTRACE_STACKS python do not go together",
        ),
        (
            &[("GPUTRACE_CAPTURE_RANGE", "nvtx:a"), ("GPUTRACE_DELAY", "1")],
            "gputrace: GPUTRACE_CAPTURE_RANGE and GPUTRACE_DELAY do not go together",
        ),
    ] {
        let mut command = gputrace();
        command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).args(["--", "true"]);
        let refused = finish(command.envs(variables.iter().copied())).expect_code(2);
        assert!(refused.stderr.starts_with(expected), "{}", refused.stderr);
        assert_eq!(refused.stderr.matches("gputrace: ").count(), 1, "{}", refused.stderr);
    }
}
