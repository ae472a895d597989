//! Outputs on a file system that is full, for good or for a while, and outputs that are removed.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{count, gputrace};

/// Runs a shell script in a mount namespace of its own with a file system of that size at `$1`; `$2`
/// is the tool, `$3` a program that launches as often as it is told, and `$4` a name to save the
/// trace by. `None` where no file system can be mounted, which is said.
fn on_a_disk(test: &str, folder: &Folder, size: &str, script: &str) -> Option<Ended> {
    let disk = folder.join("disk");
    fs::create_dir(&disk).unwrap();
    let shell = |script: &str| {
        let tool = gputrace();
        let mut command = Command::new("unshare");
        for (name, value) in tool.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(["-m", "sh", "-c", script, "sh"]).arg(&disk).arg(tool.get_program());
        command.arg(compiled("many", Link::Driver)).arg(folder.join("saved"));
        finish(&mut command)
    };
    let mount = format!("mount -t tmpfs -o size={size} tmpfs \"$1\"");
    let mounted = shell(&mount);
    if mounted.code() != Some(0) {
        needs::skipped(test, &format!("no file system can be mounted: {}", mounted.stderr));
        return None;
    }
    let save = "code=$?; cp \"$1/out/trace.gputrace\" \"$4\"; cat \"$1/out/summary.txt\" >&2; exit $code";
    Some(shell(&format!("{mount} || exit 99; {script}; {save}")))
}

fn saved(folder: &Folder) -> (Value, String) {
    let read = finish(gputrace().args(["report", "--json"]).arg(folder.join("saved")));
    assert!(matches!(read.code(), Some(0 | 3)), "{:?}\n{}", read.status, read.stderr);
    (serde_json::from_str(&read.stdout).unwrap(), read.stderr)
}

#[test]
fn full_file_system_costs_the_end_of_the_trace_alone() {
    let folder = Folder::new();
    let Some(ended) = on_a_disk(
        "full_file_system_costs_the_end_of_the_trace_alone",
        &folder,
        "64k",
        "\"$2\" run --simulate -o \"$1/out\" -- sh -c '\"$0\" 400000; echo ran; exit 9' \"$3\"",
    ) else {
        return;
    };
    let ended = ended.expect_code(9);
    assert!(ended.stdout.ends_with("ran\n"), "{}", ended.stdout);
    assert!(ended.stderr.contains("cannot write the trace file"), "{}", ended.stderr);
    assert!(ended.stderr.contains("not_in_trace"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("nothing lost"), "{}", ended.stderr);
    assert!(fs::metadata(folder.join("saved")).unwrap().len() <= 64 << 10);
    // Said to be cut off, and read up to there.
    let (seen, stderr) = saved(&folder);
    assert!((1..400_000).contains(&count(&seen, "launches")), "{stderr}");
}

/// What is recorded once there is room again is in the file; what is missing is said in both reports.
#[test]
fn file_system_that_was_full_for_a_while_costs_that_while_alone() {
    let folder = Folder::new();
    let Some(ended) = on_a_disk(
        "file_system_that_was_full_for_a_while_costs_that_while_alone",
        &folder,
        "512k",
        "head -c 458752 /dev/zero >\"$1/filler\"; \
         \"$2\" run --simulate --json \"$4.json\" -o \"$1/out\" -- sh -c \
         'size() { stat -c %s \"$1/out/trace.gputrace\"; }; \"$0\" 400000; full=$(size \"$1\"); rm \"$1/filler\"; \
         while [ $(size \"$1\") = $full ]; do \"$0\" 1; sleep 0.2; done; \"$0\" 1000; \"$0\" 2000; exit 9' \"$3\" \"$1\"",
    ) else {
        return;
    };
    let ended = ended.expect_code(9);
    // A few blocks fit into what is left of a page, so it may come to that more than once.
    let notices: Vec<_> = ended.stderr.lines().filter(|line| line.contains("the trace file")).collect();
    let stops = |line: &&str| line.contains("cannot write the trace file");
    assert!(notices.len().is_multiple_of(2) && notices.iter().step_by(2).all(stops), "{}", ended.stderr);
    let goes_on = "gputrace: warning: the trace file is written again; ";
    let left_out: Vec<u64> = notices
        .iter()
        .skip(1)
        .step_by(2)
        .map(|line| {
            line.strip_prefix(goes_on).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap()
        })
        .collect();
    let (seen, stderr) = saved(&folder);
    assert_eq!(seen["complete"], false, "{stderr}");
    let live: Value = serde_json::from_slice(&fs::read(folder.join("saved.json")).unwrap()).unwrap();
    let launches = |report: &Value| -> Vec<u64> {
        report["processes"].as_array().unwrap().iter().map(|process| count(process, "launches")).collect()
    };
    let (live_launches, launches) = (launches(&live), launches(&seen));
    assert!(launches.ends_with(&[1000, 2000]) && live_launches.ends_with(&[1000, 2000]), "{seen:#}");
    assert!(launches[0] < live_launches[0], "{launches:?} of {live_launches:?}");
    let missing = seen["dropped"]["not_in_trace"].as_u64().unwrap();
    assert_eq!(live["dropped"]["not_in_trace"], missing);
    assert!(missing >= live_launches[0] - launches[0], "{missing}: {launches:?} of {live_launches:?}");
    assert_eq!(left_out.iter().sum::<u64>(), missing, "{}", ended.stderr);
    assert!(ended.stderr.contains(" not_in_trace"), "{}", ended.stderr);
}

/// What came last is kept, as far as there is room.
#[test]
fn flight_recorder_on_a_full_file_system_keeps_the_newest() {
    let folder = Folder::new();
    let Some(ended) = on_a_disk(
        "flight_recorder_on_a_full_file_system_keeps_the_newest",
        &folder,
        "96k",
        "\"$2\" run --simulate --flight-recorder 3600 --json \"$4.json\" -o \"$1/out\" -- sh -c \
         '\"$0\" 100000; \"$0\" 70; exit 9' \"$3\"",
    ) else {
        return;
    };
    let ended = ended.expect_code(9);
    assert!(!ended.stderr.contains("cannot write the trace file"), "{}", ended.stderr);
    let (seen, stderr) = saved(&folder);
    assert_eq!((&seen["complete"], stderr.as_str()), (&Value::Bool(true), ""), "{seen:#}");
    let live: Value = serde_json::from_slice(&fs::read(folder.join("saved.json")).unwrap()).unwrap();
    let newest = seen["processes"].as_array().unwrap().last().unwrap();
    assert_eq!((count(newest, "launches"), &newest["end"]), (70, &"exit".into()), "{seen:#}");
    assert_eq!(live["processes"].as_array().unwrap().len(), 2);
    assert!(count(&seen, "launches") < count(&live, "launches"), "{stderr}");
    let missing = live["dropped"]["not_in_trace"].as_u64().unwrap();
    assert!(missing >= count(&live, "launches") - count(&seen, "launches"), "{missing}");
}

#[test]
fn removed_outputs_are_reported_at_once() {
    let folder = Folder::new();
    let out = folder.join("out");
    let script = format!(
        "\"$0\" 10; rm -r '{}'; for i in 1 2 3 4 5 6; do sleep 0.5; \"$0\" 10; done; echo ran; exit 9",
        out.display()
    );
    let many = compiled("many", Link::Driver);
    let mut command = gputrace();
    command.args(["run", "--simulate", "-o"]).arg(&out).args(["--", "sh", "-c", &script]).arg(many);
    let ended = finish(&mut command).expect_code(9);
    let mut lines = ended.stderr.lines();
    let at = lines.by_ref().position(|line| line.contains("was removed or moved; recording continues"));
    assert!(at.is_some(), "{}", ended.stderr);
    let last = lines.last().unwrap_or_default();
    assert!(
        last.contains("wrote in part") && last.contains("the trace, which was removed"),
        "{}",
        ended.stderr
    );
}
