//! Forked and exec'd children join the session as processes of their own.

use crate::harness::folder::Folder;
use crate::harness::life::same_as_untraced;
use crate::harness::needs;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{Run, bare_command, calls, count, dropped, run, run_command};

#[test]
fn parent_and_child_are_both_counted() {
    let report = run("fork_first").succeed().report();
    assert_eq!(count(&report, "launches"), 10);
    assert_eq!(calls(&report, "first_kernel"), 10);
}

#[test]
fn children_that_only_exit_change_nothing() {
    same_as_untraced("fork_after", &[]).launches(6);
}

#[test]
fn exec_ends_one_process_and_begins_another() {
    let report = run("exec_after").arg(compiled("basic", Link::Driver)).succeed().report();
    assert_eq!(count(&report, "launches"), 12);
    assert_eq!(calls(&report, "first_kernel"), 9);
    let ends: Vec<_> =
        report["processes"].as_array().unwrap().iter().map(|process| &process["end"]).collect();
    assert_eq!(ends, ["exec", "exit"], "{report:#}");
    assert_eq!(
        (&report["complete"], &report["device_time_coverage"]),
        (&true.into(), &1.0.into()),
        "{report:#}"
    );
}

#[test]
fn exec_of_a_program_without_cuda_keeps_what_was_recorded() {
    let traced = run("exec_after").arg("/bin/echo").arg("gone").succeed();
    assert_eq!(traced.ended.stdout, "gone\n");
    let report = traced.report();
    assert_eq!(
        (count(&report, "launches"), &report["processes"][0]["end"]),
        (2, &"exec".into()),
        "{report:#}"
    );
    assert_eq!(
        (&report["complete"], &report["device_time_coverage"]),
        (&true.into(), &1.0.into()),
        "{report:#}"
    );
}

#[test]
fn children_of_a_shell_join() {
    let script = format!("{0} & {0}; wait", compiled("basic", Link::Driver).display());
    let report = run_command("sh").arg("-c").arg(script).succeed().report();
    assert_eq!(count(&report, "launches"), 20);
}

/// Bare, the collector would be adopted by a subreaper or by process 1, and whoever waits for all
/// of its children would wait for ever: there is none, and one line says so.
#[test]
fn program_that_reaps_orphans_is_not_given_one_of_ours() {
    let program = compiled("adopts", Link::Driver);
    let traced = run_command(&program).arg("subreaper").succeed();
    assert_eq!(count(&traced.report(), "launches"), 1, "under run it has no child of ours");
    let untraced = |bare: Run| {
        let ended = bare.go().expect_code(0);
        assert_eq!(
            ended.ended.stderr.matches("not tracing: this process reaps orphans").count(),
            1,
            "{ended:?}"
        );
        assert!(!ended.output.exists(), "{ended:?}");
    };
    untraced(bare_command(&program).arg("subreaper"));
    if needs::process_one("program_that_reaps_orphans_is_not_given_one_of_ours (as process 1)") {
        untraced(bare_command("unshare").arg("-Urpf").arg(&program).arg("first"));
    }
}

#[test]
fn programs_started_in_between_change_nothing() {
    same_as_untraced("spawns", &[]).launches(5);
}

#[test]
fn forked_child_that_becomes_another_program_is_recorded_as_one() {
    let basic = compiled("basic", Link::Driver);
    same_as_untraced("fork_exec", &[basic.to_str().unwrap()]).launches(14);
    same_as_untraced("fork_exec", &["/bin/true"]).launches(4);
}

#[test]
fn spawned_and_vforked_programs_are_recorded_and_change_nothing() {
    let basic = compiled("basic", Link::Driver);
    same_as_untraced("spawn_cuda", &[basic.to_str().unwrap()]).launches(24);
}

#[test]
fn exec_from_a_traced_program_to_another_keeps_both() {
    let basic = compiled("basic", Link::Driver);
    same_as_untraced("exec_after", &[basic.to_str().unwrap()]).launches(12);
}

/// An exec that fails is no end: the program goes on, and so does its session.
#[test]
fn failed_exec_ends_nothing() {
    same_as_untraced("failed_exec", &[]).launches(7).each(expect_one_whole_process);
}

/// The file is found, and the exec is refused all the same: the session goes on, also of threads that launch
/// beside it.
#[test]
fn refused_exec_ends_nothing() {
    let folder = Folder::new();
    let lives = same_as_untraced("exec_refused", &[folder.path().to_str().unwrap()]);
    assert_eq!(lives.untraced.code(), Some(7));
    lives.launches(23).each(|report, how| {
        assert_eq!(calls(report, "first_kernel"), 17, "{how}: {report:#}");
        assert_eq!(count(report, "device_only"), 0, "{how}");
        expect_one_whole_process(report, how);
    });
}

#[test]
fn launches_beside_a_refused_exec_are_recorded() {
    let folder = Folder::new();
    let lives = same_as_untraced("exec_refused_beside", &[folder.path().to_str().unwrap()]);
    assert_eq!(lives.untraced.code(), Some(7));
    lives.each(|report, how| {
        let said = if how == "bare" { &lives.bare } else { &lives.run }.ended.stderr.lines();
        let launched: u64 = said
            .filter_map(|line| line.strip_prefix("launches "))
            .find_map(|number| number.parse().ok())
            .unwrap();
        assert_eq!(
            (count(report, "launches"), calls(report, "second_kernel")),
            (launched, 5),
            "{how}: {report:#}"
        );
        expect_one_whole_process(report, how);
    });
}

/// One session, which ended by an exit and lost nothing.
#[track_caller]
fn expect_one_whole_process(report: &serde_json::Value, how: &str) {
    let ends: Vec<_> =
        report["processes"].as_array().unwrap().iter().map(|process| &process["end"]).collect();
    assert_eq!(ends, ["exit"], "{how}: {report:#}");
    assert_eq!((dropped(report), &report["device_time_coverage"]), (0, &1.0.into()), "{how}: {report:#}");
}

#[test]
fn daemons_are_recorded() {
    for how in ["daemon", "double_fork"] {
        same_as_untraced("daemon", &[how]).launches(5);
    }
}

/// Under `run` the session ends soon after the command: what its child does later is not
/// recorded, the report says that it was still running, and the child goes on unharmed.
#[test]
fn child_that_outlives_its_parent_is_recorded_as_long_as_the_session_lasts() {
    let lives = same_as_untraced("outlives", &[]);
    lives.each(|report, how| {
        let launches = count(report, "launches");
        let children = report["processes"].as_array().unwrap();
        assert_eq!(children.len(), 1, "{how}: {report:#}");
        if how == "bare" {
            assert_eq!((launches, &children[0]["end"]), (2003, &"exit".into()), "{how}");
        } else {
            assert!((3..2003).contains(&launches), "{how}: {launches}");
            assert_eq!(children[0]["end"], "running", "{how}");
        }
    });
    let said = run("outlives").go().ended.stderr;
    let pid = said.split_once("command has ended: process ").and_then(|(_, rest)| rest.lines().next());
    assert!(pid.is_some_and(|pid| pid.parse::<u32>().is_ok()), "{said}");
}
