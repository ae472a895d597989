//! `--max-size`: the trace file holds the first part, the rest covers all; what is left out is counted.

use std::fs;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, ctl, eventually};
use crate::harness::tool::{Run, Traced, bare, calls, count, dropped, gputrace, joining, report, run_with};

const LAUNCHES: u64 = 200_000;
const LIMIT: u64 = 128 << 10;

fn many(run: Run) -> Run {
    run.arg(LAUNCHES.to_string()).env("GPUTRACE_SIM_PACE", "off").env("GPUTRACE_ON_FULL", "wait")
}

/// The file is short enough and whole, and tells of all that it lacks; the other outputs have everything.
#[track_caller]
fn is_the_first_part(traced: &Traced, live: Option<&Value>) {
    let bytes = fs::metadata(traced.trace()).unwrap().len();
    assert!((LIMIT / 2..=LIMIT).contains(&bytes), "{bytes}");
    let summary = traced.read("summary.txt");
    assert!(summary.contains("200,000 launches") && summary.contains("Lost       nothing"), "{summary}");
    let last = traced.ended.stderr.lines().last().unwrap();
    assert!(last.contains("nothing lost; trace.gputrace has the first 128 KiB and lacks "), "{last}");
    let folded = traced.read("flame.folded");
    assert!(folded.contains("first_kernel"), "{folded}");

    let report = traced.report();
    let [limit] = &report["size_limits"].as_array().unwrap()[..] else { panic!("{report:#}") };
    let left_out = &limit["left_out"];
    assert_eq!((&limit["max_bytes"], &limit["is_counted"]), (&LIMIT.into(), &true.into()));
    let launches = count(&report, "launches");
    assert!(launches > 1000, "{launches}");
    assert_eq!(launches + count(left_out, "launches"), LAUNCHES, "{report:#}");
    assert_eq!(dropped(&report), count(left_out, "entries"), "{report:#}");
    assert_eq!(report["in_flight"], serde_json::json!([]));
    if let Some(live) = live {
        assert_eq!((count(live, "launches"), calls(live, "first_kernel")), (LAUNCHES, LAUNCHES));
        assert_eq!((dropped(live), &live["size_limits"]), (0, &serde_json::json!([])));
        let calls = |report: &Value| count(report, "host_calls");
        assert_eq!(calls(&report) + count(left_out, "host_calls"), calls(live));
    }
    let text = finish(gputrace().arg("report").arg(traced.trace())).expect_code(0).stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("Part the first 128 KiB of the trace, as --max-size asked; not in it: "), "{text}");
    for command in [&["flamegraph"][..], &["export", "--format", "otlp-json"]] {
        finish(gputrace().args(command).arg(traced.trace())).expect_code(0);
    }
}

#[test]
fn max_size_bounds_the_file_and_the_outputs_cover_everything() {
    let folder = Folder::new();
    let json = folder.join("live.json");
    let options = ["--max-size", "128K", "--json", json.to_str().unwrap()];
    let traced = many(run_with(&options, compiled("many", Link::Driver))).succeed();
    let live = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    is_the_first_part(&traced, Some(&live));
}

#[test]
fn max_size_is_a_variable_with_auto_collect() {
    is_the_first_part(&many(bare("many")).env("GPUTRACE_MAX_SIZE", "128k").succeed(), None);
}

#[test]
fn max_size_that_is_not_reached_changes_nothing() {
    let traced = run_with(&["--max-size=1G"], compiled("basic", Link::Driver)).succeed();
    assert_eq!(traced.report()["size_limits"], serde_json::json!([]));
    assert!(traced.ended.stderr.contains("nothing lost); open "), "{}", traced.ended.stderr);
}

/// One keeps the first part and the other the last.
#[test]
fn max_size_and_a_flight_recorder_are_refused_together() {
    let folder = Folder::new();
    for (options, variable) in [
        (&["--max-size=1M", "--flight-recorder=5"][..], ""),
        (&["--max-size=1M"], "GPUTRACE_FLIGHT_RECORDER"),
        (&["--flight-recorder=5"], "GPUTRACE_MAX_SIZE"),
    ] {
        let mut command = gputrace();
        command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).args(options).args(["--", "true"]);
        if !variable.is_empty() {
            command.env(variable, "100000");
        }
        if variable == "GPUTRACE_FLIGHT_RECORDER" {
            command.env(variable, "5");
        }
        let said = finish(&mut command).expect_code(2).stderr;
        assert!(said.contains("--max-size and --flight-recorder do not go together"), "{said}");
        assert!(!folder.join("out").exists());
    }
    for size in ["12", "lots", ""] {
        let refused = finish(gputrace().args(["run", "--max-size", size, "--", "true"]));
        assert_eq!(refused.code(), Some(2), "{size}: {}", refused.stderr);
    }
}

#[test]
fn max_size_bounds_what_a_collector_with_its_own_folder_writes() {
    let folder = Folder::new();
    let mut command = gputrace();
    command.args(["collect", "--max-size=128K", "--once", "--listen"]).arg(folder.join("session"));
    let mut collector = Session::start(command.arg("-o").arg(folder.join("out")));
    let line = collector.line();
    let (_, socket) = line.split_once('=').unwrap();
    for _ in 0..2 {
        let mut program = joining("many", socket.as_ref());
        finish(program.arg((LAUNCHES / 2).to_string()).env("GPUTRACE_ON_FULL", "wait")).expect_code(0);
    }
    let (status, said) = collector.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("has the first 128 KiB and lacks "), "{said}");
    let report = report(&[folder.join("out/trace.gputrace")]);
    let left_out = &report["size_limits"][0]["left_out"];
    // On a loaded machine a thread may wait for room in vain, and then its events are counted as dropped:
    // those of the second process, which is not in the trace, as what it lost.
    let full = report["dropped"]["ring_full"].as_u64().unwrap_or(0) + count(left_out, "lost");
    let known = count(&report, "launches") + count(left_out, "launches");
    assert!((LAUNCHES..=LAUNCHES + full).contains(&(known + full)), "{known} and {full}: {left_out:#}");
    assert_eq!(report["complete"], full == 0);
}

#[test]
fn max_size_is_reported_while_the_program_runs() {
    let folder = Folder::new();
    let script = format!("{} {LAUNCHES}; echo done; read line", compiled("many", Link::Driver).display());
    let mut session = Session::run(&folder, &["--max-size=128K", "--on-full=wait"], "sh", &["-c", &script]);
    assert_eq!(session.line(), "done");
    let text = eventually("the limit", || {
        let text = ctl(session.pid(), &["status"]).expect_code(0).stdout;
        text.contains("Trace      has the first 128.0 KiB, as --max-size asked; lacks ").then_some(text)
    });
    assert!(
        text.contains("Recorded   200,000 launches, ") && text.contains("Lost       nothing\n"),
        "{text}"
    );
    session.end();
}
