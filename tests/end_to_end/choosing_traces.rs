//! Which traces `report`, `flamegraph` and `export` read: the newest, a folder's, all but the bad ones.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::harness::folder::Folder;
use crate::harness::process::{Ended, finish};
use crate::harness::tool::{count, gputrace};

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/demo-h200.gputrace")
}

/// A copy of the recorded demo at `path`, written `age` seconds ago.
fn put(path: &Path, age: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::copy(demo(), path).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
}

fn in_folder(folder: &Path, arguments: &[&str]) -> Ended {
    finish(gputrace().current_dir(folder).args(arguments))
}

fn launches(ended: &Ended) -> u64 {
    count(&serde_json::from_str(&ended.stdout).unwrap(), "launches")
}

#[test]
fn newest_trace_in_the_default_folder_is_read_if_none_is_named() {
    let folder = Folder::new();
    put(&folder.join("gputrace-out/old-1/trace.gputrace"), 200);
    put(&folder.join("gputrace-out/new-2/trace.gputrace"), 100);
    // A file that is no trace at all is newer and is not taken for one.
    fs::write(folder.join("gputrace-out/notes.txt"), "mine").unwrap();
    let report = in_folder(folder.path(), &["report", "--json"]).expect_code(0);
    assert_eq!(launches(&report), 240);
    let said = "gputrace: reading gputrace-out/new-2, the newest trace in gputrace-out\n";
    assert_eq!(report.stderr, said);
    let folded = in_folder(folder.path(), &["flamegraph", "--folded"]).expect_code(0);
    assert!(folded.stdout.contains("gemm_backward") && folded.stderr == said, "{}", folded.stderr);
}

#[test]
fn missing_default_folder_is_an_error_with_a_hint() {
    let folder = Folder::new();
    for command in ["report", "flamegraph"] {
        let ended = in_folder(folder.path(), &[command]).expect_code(66);
        assert_eq!(
            ended.stderr,
            "gputrace: no trace was named, and there is none in gputrace-out\n  \
             hint: name a trace, or record one: gputrace run -- CMD\n"
        );
    }
}

#[test]
fn folder_with_one_session_s_trace_is_that_trace() {
    let folder = Folder::new();
    put(&folder.join("plain/trace.gputrace"), 0);
    put(&folder.join("named/monday.gputrace"), 0);
    for name in ["plain", "named"] {
        let report = in_folder(folder.path(), &["report", "--json", name]).expect_code(0);
        assert_eq!((launches(&report), report.stderr.as_str()), (240, ""), "{name}");
    }
    // A trace in several files: all of them are read.
    for file in ["trace.2.gputrace", "trace.10.gputrace", "trace.gputrace"] {
        put(&folder.join("rotated").join(file), 0);
    }
    let report = in_folder(folder.path(), &["report", "--json", "rotated"]).expect_code(0);
    assert_eq!(launches(&report), 3 * 240);
}

#[test]
fn folder_of_sessions_folders_is_listed() {
    let folder = Folder::new();
    put(&folder.join("all/old-1/trace.gputrace"), 200);
    put(&folder.join("all/new-2/trace.gputrace"), 100);
    fs::create_dir(folder.join("all/empty")).unwrap();
    fs::create_dir(folder.join("all/bad-3")).unwrap();
    fs::write(folder.join("all/bad-3/trace.gputrace"), "no trace").unwrap();
    let listed = in_folder(folder.path(), &["report", "all"]).expect_code(0);
    let lines: Vec<_> = listed.stdout.lines().collect();
    assert_eq!(lines[0], "all holds 3 traces, the newest first:");
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with("all/")).map(str::to_owned);
    let paths: Vec<_> = lines[3..].iter().filter_map(|line| path(line)).collect();
    assert_eq!(paths, ["all/bad-3", "all/new-2", "all/old-1"], "{}", listed.stdout);
    assert!(lines[3].ends_with("(cannot be read)"), "{}", listed.stdout);
    // When it was recorded, its size and the program come from the trace.
    assert!(lines[4].contains("KiB") && lines[4].contains("demo-workload"), "{}", listed.stdout);
    assert_eq!(listed.stderr, "");

    // Commands whose output is no list refuse, after the same list.
    for arguments in
        [&["report", "--json", "all"][..], &["flamegraph", "all"], &["report", "all", "all/new-2"]]
    {
        let refused = in_folder(folder.path(), arguments).expect_code(2);
        assert_eq!(refused.stdout, "", "{arguments:?}");
        assert!(refused.stderr.starts_with(&listed.stdout), "{arguments:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("hint: name one of them, or all/*"), "{}", refused.stderr);
    }
}

#[test]
fn bad_trace_among_good_ones_is_skipped_and_sets_the_exit_code() {
    let folder = Folder::new();
    put(&folder.join("good.gputrace"), 0);
    fs::write(folder.join("bad.gputrace"), "no trace at all, and longer than any header is: ".repeat(4))
        .unwrap();
    for (bad, code, why) in [
        ("bad.gputrace", 65, "bad.gputrace is not a gputrace trace: it does not begin as one"),
        ("missing.gputrace", 66, "there is no trace file missing.gputrace"),
    ] {
        let report = in_folder(folder.path(), &["report", "--json", bad, "good.gputrace"]).expect_code(code);
        assert_eq!(launches(&report), 240);
        assert_eq!(report.stderr, format!("gputrace: warning: skipped: {why}\n"));
        let json: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
        assert_eq!((&json["complete"], &json["damages"][0]["skipped"]), (&false.into(), &true.into()));
        let text = in_folder(folder.path(), &["report", "good.gputrace", bad]).expect_code(code).stdout;
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&format!("Trace skipped: {why}")), "{text}");
        assert!(words.contains("Lost all of 1 trace"), "{text}");
        let folded =
            in_folder(folder.path(), &["flamegraph", "--folded", "good.gputrace", bad]).expect_code(code);
        assert!(folded.stdout.contains("gemm_backward"));
        // Alone it is an error, as before.
        assert_eq!(in_folder(folder.path(), &["report", bad]).expect_code(code).stdout, "");
    }
}

#[test]
fn export_without_a_format_lists_the_formats() {
    let trace = demo().display().to_string();
    for arguments in [&["export"][..], &["export", &trace]] {
        let ended = finish(gputrace().args(arguments)).expect_code(2);
        for format in ["--format otlp-json", "--otlp URL"] {
            assert!(ended.stderr.contains(format), "{}", ended.stderr);
        }
        assert_eq!(ended.stdout, "");
    }
}
