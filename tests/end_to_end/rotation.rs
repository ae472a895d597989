//! `collect --listen --rotate-size --rotate-every --keep`: a trace that is cut into files loses nothing.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::{Collector, Program, report, socket, wait_until};
use crate::harness::back_end::{BackEnd, Reply, spans_of};
use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::session::ctl;
use crate::harness::tool::{count, dropped, gputrace};
use crate::metrics::Metrics;
use crate::nvtx;

/// The closed trace files in a folder, in order.
fn closed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_closed = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("trace.0") && name.ends_with(".gputrace")
    };
    let mut files: Vec<_> = entries.filter(is_closed).collect();
    files.sort();
    files
}

fn start(socket: &Path) -> Program {
    Program::start_with(socket, |command| _ = command.env("GPUTRACE_ON_FULL", "wait"))
}

/// All files of a folder, closed and last.
fn files(folder: &Path) -> Vec<PathBuf> {
    closed(folder).into_iter().chain([folder.join("trace.gputrace")]).collect()
}

#[test]
fn trace_rotated_by_size_is_read_as_one() {
    let folder = Folder::new();
    let collector = Collector::start_with(&folder, "out", &["--once", "--rotate-size=64K"]);
    let mut programs = [start(&socket(&folder)), start(&socket(&folder))];
    for round in 0..12 {
        programs.iter_mut().for_each(|program| program.order(10_000));
        programs.iter_mut().for_each(Program::wait);
        // Something goes on between cuts as well.
        sleep(Duration::from_millis(round * 20));
    }
    for program in programs {
        assert_eq!(program.end(), "");
    }
    collector.end(true);
    let out = folder.join("out");
    let all = files(&out);
    assert!(all.len() > 3, "{all:?}");

    let series = report(std::slice::from_ref(&out));
    assert_eq!(count(&series, "launches"), 240_000, "{series:#}");
    assert_eq!((dropped(&series), &series["complete"]), (0, &json!(true)), "{series:#}");
    assert_eq!(series["untimed_operations"], 0, "a call and its record in two files are joined: {series:#}");
    assert_eq!(series["sessions"], 1);
    let processes = series["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "a process is one over all files");
    assert!(processes.iter().all(|process| process["end"] == "exit" && process["launches"] == 120_000));
    let part = json!([{"first_file": 1, "last_file": all.len(), "missing_files": 0, "goes_on": false}]);
    assert_eq!(series["series"], part);
    let mut reversed = all.clone();
    reversed.reverse();
    assert_eq!(report(&reversed), series, "the files by name, in any order");

    let mut launches = 0;
    for (index, file) in all.iter().enumerate() {
        let bytes = fs::metadata(file).unwrap().len();
        assert!((20 << 10..600 << 10).contains(&bytes) || index + 1 == all.len(), "{bytes}");
        let ended = finish(gputrace().args(["report", "--json"]).arg(file)).expect_code(0);
        let alone: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(dropped(&alone), 0, "{alone:#}");
        let kernels = alone["kernels"].as_array().unwrap();
        let names: Vec<_> = kernels.iter().filter_map(|kernel| kernel["name"].as_str()).collect();
        assert!(
            names.iter().all(|name| name.contains("first_kernel")),
            "definitions are repeated: {names:?}"
        );
        launches += count(&alone, "launches");
        if index + 1 < all.len() {
            let name = file.to_string_lossy();
            for (beside, text) in [("flame", "svg"), ("flame", "folded"), ("summary", "txt")] {
                let path = name.replace("/trace.", &format!("/{beside}.")).replace("gputrace", text);
                assert!(fs::metadata(&path).is_ok_and(|file| file.len() > 0), "{path}");
            }
        }
    }
    assert_eq!(launches, 240_000);
    let folded = finish(gputrace().args(["flamegraph", "--folded"]).arg(&out)).expect_code(0).stdout;
    assert!(folded.contains("first_kernel"), "{folded}");
    let said = fs::read_to_string(folder.join("out.stderr")).unwrap();
    assert!(said.contains("gputrace: closed ") && said.contains("reads all\n"), "{said}");
}

/// Files that are closed by time, of which the newest two stay.
#[test]
fn old_files_of_a_rotated_trace_are_deleted_and_counted() {
    let folder = Folder::new();
    let collector = Collector::start_with(&folder, "out", &["--rotate-every=1s", "--keep=2"]);
    let out = folder.join("out");
    let mut program = start(&socket(&folder));
    let pid = collector.process.0.id();
    let status = || {
        let ended = ctl(pid, &["status", "--json"]).expect_code(0);
        serde_json::from_str::<Value>(&ended.stdout).unwrap()["recording"].clone()
    };
    let closed_files = || status()["closed_files"].as_u64().unwrap();
    for _ in 0..3 {
        let before = closed_files();
        program.launch(1_000);
        wait_until("another file is closed", || closed_files() > before);
    }
    // No file is made of a time in which nothing happens.
    sleep(Duration::from_millis(2_500));
    let files = closed_files();
    sleep(Duration::from_millis(2_500));
    let status = status();
    assert_eq!((status["launches"].as_u64(), status["closed_files"].as_u64()), (Some(3_000), Some(files)));
    assert_eq!(status["deleted_files"], files - 2, "{status:#}");
    let text = ctl(pid, &["status"]).expect_code(0).stdout;
    let deleted = files - 2;
    let counted = format!("Files      {files} closed by rotation, {deleted} of them deleted by --keep\n");
    assert!(text.contains(&counted), "{text}");
    let names: Vec<_> = closed(&out).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, [files - 1, files].map(|number| OsString::from(format!("trace.{number:06}.gputrace"))));
    assert!(!out.join("flame.000001.svg").exists() && !out.join("summary.000001.txt").exists());
    program.launch(10);
    program.end();
    collector.end(false);
    let said = fs::read_to_string(folder.join("out.stderr")).unwrap();
    assert_eq!(said.matches("as --keep asks").count() as u64, deleted, "{said}");
    assert!(said.contains(&format!("the trace has {} files, of which --keep deleted ", files + 1)), "{said}");
    let rest = report(std::slice::from_ref(&out));
    let launches = count(&rest, "launches");
    assert!((10..3_010).contains(&launches) && rest["complete"] == json!(false), "{rest:#}");
    let part = json!([{
        "first_file": files - 1, "last_file": files + 1, "missing_files": deleted, "goes_on": false
    }]);
    assert_eq!((dropped(&rest), &rest["series"]), (0, &part));
    let text = finish(gputrace().arg("report").arg(&out)).expect_code(0).stdout;
    assert!(text.contains(" of a rotated trace; ") && text.contains("before the last w"), "{text}");
}

/// Killed at the moment of a cut, or soon before or after it: what was stored is there once, and the next
/// collector has the rest.
#[test]
fn collector_killed_near_a_cut_loses_nothing() {
    let mut in_cut = 0;
    for round in 0..10 {
        let folder = Folder::new();
        let (next, numbered) = (folder.join("a/trace.gputrace.next"), folder.join("a/trace.000001.gputrace"));
        let first = Collector::start_with(&folder, "a", &["--rotate-every=1s"]);
        let mut program = start(&socket(&folder));
        let begin = Instant::now();
        let mut launches = 0;
        // Never more at a time than a collector holds back of a ring until it is stored.
        while begin.elapsed() < Duration::from_millis(900) {
            program.launch(200);
            launches += 200;
            sleep(Duration::from_millis(40));
        }
        program.order(3_000);
        while begin.elapsed() < Duration::from_secs(3) {
            let is_time = match round % 5 {
                0 | 1 => next.exists() || numbered.exists(),
                2 => numbered.exists(),
                3 => begin.elapsed() > Duration::from_millis(990 + round),
                _ => numbered.exists() && next_file_has_events(&folder),
            };
            if is_time {
                break;
            }
        }
        first.kill();
        in_cut += usize::from(next.exists());
        program.wait();
        let second = Collector::start_with(&folder, "b", &["--once", "--rotate-every=1s"]);
        program.launch(2_000);
        let said = program.end();
        second.end(true);
        let both = report(&[folder.join("a"), folder.join("b")]);
        assert_eq!(count(&both, "launches"), launches + 5_000, "round {round}\n{said}\n{both:#}");
        assert_eq!(dropped(&both), 0, "round {round}: {both:#}");
        assert_eq!(both["processes"].as_array().map(Vec::len), Some(1));
    }
    println!("killed {in_cut} times within a cut");
}

fn next_file_has_events(folder: &Folder) -> bool {
    fs::metadata(folder.join("a/trace.gputrace")).is_ok_and(|file| file.len() > 6_000)
}

#[test]
fn range_that_is_open_over_cuts_is_one_span() {
    let Some(environment) = nvtx::nvtx("rotation::range_that_is_open_over_cuts_is_one_span") else { return };
    let folder = Folder::new();
    let collector = Collector::start_with(&folder, "out", &["--once", "--rotate-size=64K"]);
    let held = nvtx::built(environment, "nvtx_held.c", &[]);
    let mut program = Program::start_with(&socket(&folder), |command| {
        let mut held = Command::new(held);
        let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        held.envs(variables).env("GPUTRACE_ON_FULL", "wait");
        *command = held;
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped());
    });
    for _ in 0..4 {
        program.launch(60_000);
        sleep(Duration::from_millis(300));
    }
    program.end();
    collector.end(true);
    let out = folder.join("out");
    assert!(closed(&out).len() > 1);
    let spans = finish(gputrace().args(["export", "--format=otlp-json"]).arg(&out)).expect_code(0).stdout;
    let spans: Vec<Value> = spans
        .lines()
        .flat_map(|line| {
            let request: Value = serde_json::from_str(line).unwrap();
            request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
        })
        .filter(|span| span["name"] == "held")
        .collect();
    let [span] = &spans[..] else { panic!("{spans:#?}") };
    let moment = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    assert!(moment("endTimeUnixNano") - moment("startTimeUnixNano") > 1_000_000_000, "{span:#}");
    let ranges = &report(&[out])["ranges"];
    assert_eq!(ranges[0]["operations"], 240_000, "{ranges:#}");
}

/// What is sent live over cuts is what the files hold: metrics count on, and a process's span is one.
#[test]
fn metrics_and_spans_go_on_over_cuts() {
    let folder = Folder::new();
    let back_end = BackEnd::new(&[Reply::Takes]);
    let url = back_end.url();
    let options = ["--once", "--rotate-every=1s", "--otlp", &url];
    let collector = Collector::start_by(&folder, "out", &options, |command| {
        command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
    });
    let mut program = start(&socket(&folder));
    for _ in 0..4 {
        program.launch(1_000);
        sleep(Duration::from_millis(700));
    }
    program.end();
    collector.end(true);
    let out = folder.join("out");
    assert!(closed(&out).len() > 1);
    let requests = back_end.requests();
    let last = requests.iter().rfind(|request| request.path == "/v1/metrics").expect("metrics");
    let sent = Metrics::of(&serde_json::from_slice(&last.body).unwrap());
    assert_eq!(sent.value("gpu.cuda.kernel.launch.calls"), 4_000.0);
    let jsonl = folder.join("spans.jsonl");
    let mut export = gputrace();
    finish(export.args(["export", "--format=otlp-json", "-o"]).arg(&jsonl).arg(&out)).expect_code(0);
    let exported = fs::read_to_string(jsonl).unwrap();
    let mut exported: Vec<String> = exported
        .lines()
        .flat_map(|line| spans_of(&serde_json::from_str(line).unwrap()).into_keys())
        .collect();
    let sent: Vec<String> = back_end.spans().into_keys().collect();
    exported.sort();
    assert!(!sent.is_empty());
    assert_eq!(sent, exported);
}

#[test]
fn wrong_rotation_options_are_refused() {
    let folder = Folder::new();
    let refused = |options: &[&str], variable: Option<(&str, &str)>, expected: &str| {
        let mut command = gputrace();
        command.arg("collect").args(options).arg("-o").arg(folder.join("out"));
        if !options.contains(&"--fd=0") {
            command.arg("--listen").arg(folder.join("session"));
        }
        command.envs(variable);
        let said = finish(&mut command).expect_code(2).stderr;
        assert!(said.contains(expected), "{options:?} {variable:?}: {said}");
        assert!(!folder.join("out").exists());
    };
    refused(&["--rotate-size=12"], None, "a trace of less than 64 KiB holds nothing");
    refused(&["--rotate-every=5w"], None, "a time is a whole number of seconds");
    refused(&["--rotate-every=1s", "--keep=0"], None, "the number of files to keep is 1 or more");
    refused(&["--keep=3"], None, "--keep without rotation deletes nothing");
    refused(&["--rotate-size=1M", "--max-size=1G"], None, "--max-size and rotation do not go together");
    refused(&["--rotate-size=1M", "--flight-recorder=5"], None, "--flight-recorder and rotation do not go");
    refused(&[], Some(("GPUTRACE_ROTATE_SIZE", "lots")), "GPUTRACE_ROTATE_SIZE=lots: a size is");
    refused(&[], Some(("GPUTRACE_ROTATE_EVERY", "soon")), "GPUTRACE_ROTATE_EVERY=soon: a time is");
    refused(
        &["--rotate-size=1M"],
        Some(("GPUTRACE_KEEP", "none")),
        "GPUTRACE_KEEP=none: the number of files",
    );
    refused(&["--fd=0", "--rotate-size=1M"], None, "--listen");
    finish(gputrace().args(["run", "--rotate-size=1M", "--", "true"])).expect_code(2);
    // What a program started alone is traced by does not rotate: the variables are not for it.
    let mut command = gputrace();
    command.args(["run", "--simulate", "-o"]).arg(folder.join("run")).args(["--", "true"]);
    finish(command.env("GPUTRACE_ROTATE_SIZE", "lots").env("GPUTRACE_KEEP", "3")).expect_code(0);
}
