//! Another client of CUPTI in the traced program: it finds what it would find alone, and we lose nothing.
//!
//! The simulated libcupti has one subscriber and one pair of buffer callbacks, as the real one.

use std::fs;
use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{self, Traced, calls, count, dropped, run, run_with};

/// What the program prints without us.
fn alone(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(compiled(program, Link::Driver));
    tool::clean(&mut command);
    finish(command.args(arguments).env("LD_LIBRARY_PATH", tool::simulated_folder())).expect_code(0).stdout
}

fn traced(program: &str, arguments: &[&str]) -> Traced {
    arguments.iter().fold(run(program), |run, argument| run.arg(argument)).succeed()
}

fn notices(traced: &Traced) -> String {
    traced.summary_words()
}

/// Every launch has its device record, whatever the client did with CUPTI in between.
#[track_caller]
fn expect_all_times(traced: &Traced, launches: u64) {
    let report = traced.report();
    assert_eq!(count(&report, "launches"), launches);
    assert_eq!(report["device_time_coverage"], 1.0, "{report:#}");
    assert_eq!(dropped(&report), 0, "{report:#}");
    assert!(!notices(traced).contains("no device times"), "{}", notices(traced));
}

/// Twenty windows of 10 to 29 launches and one of 30, one launch after each, five before all and
/// one after.
const IN_WINDOWS: u64 = (10 + 30) * 21 / 2;
const OUTSIDE: u64 = 21 + 5 + 1;

#[test]
fn late_client_finds_a_cupti_of_its_own() {
    let expected = alone("cupti_client", &["late"]);
    assert!(expected.contains("window 19: 0 0 0 callback 0 is 1"), "{expected}");
    let traced = traced("cupti_client", &["late"]);
    assert_eq!(traced.ended.stdout, expected);
    expect_all_times(&traced, IN_WINDOWS + OUTSIDE);
    assert_eq!(calls(&traced.report(), "second_kernel"), OUTSIDE);
}

/// Where graphs are timed as a whole, a client that takes kernels gets those of graphs all the same.
#[test]
fn client_gets_the_kernels_of_graphs_whatever_we_time_them_by() {
    let expected = alone("cupti_graphs", &[]);
    for mode in ["graph", "node", "auto"] {
        let traced = run("cupti_graphs").env("GPUTRACE_GRAPH_TIMES", mode).succeed();
        assert_eq!(traced.ended.stdout, expected, "{mode}");
        let report = traced.report();
        assert_eq!(count(&report, "graph_launches"), 24);
        let whole = report["whole_graphs"]["calls"].as_u64().unwrap();
        assert_eq!(calls(&report, "first_kernel") + 8 * whole, 8 * 24, "{mode}: {report:#}");
        assert_eq!((report["device_time_coverage"].as_f64(), dropped(&report)), (Some(1.0), 0));
        let changes: Vec<_> =
            report["graph_times"].as_array().unwrap().iter().map(|c| c["reason"].clone()).collect();
        match mode {
            // The first five are before the client, and its own nine are by node.
            "graph" => {
                assert!((5..=15).contains(&whole) && changes[..2] == ["asked", "other_client"], "{report:#}")
            }
            _ => assert_eq!(whole, 0),
        }
    }
}

/// CUPTI crashes over such a graph if graph-level timing is switched on meanwhile (the simulated one does
/// too).
#[test]
fn graph_made_while_a_client_wanted_nodes_stays_by_node() {
    let expected = alone("cupti_graphs", &["remade"]);
    let traced = run("cupti_graphs").arg("remade").env("GPUTRACE_GRAPH_TIMES", "graph").succeed();
    assert_eq!(traced.ended.stdout, expected);
    let report = traced.report();
    assert_eq!((count(&report, "graph_launches"), &report["whole_graphs"]["calls"]), (74, &5.into()));
    assert_eq!((report["device_time_coverage"].as_f64(), dropped(&report)), (Some(1.0), 0));
    let changes: Vec<_> =
        report["graph_times"].as_array().unwrap().iter().map(|change| change["reason"].clone()).collect();
    assert_eq!(changes, ["asked", "other_client", "unprepared"], "{report:#}");
}

#[test]
fn client_that_came_first_shares_too() {
    let expected = alone("cupti_client", &["early"]);
    let traced = traced("cupti_client", &["early"]);
    assert_eq!(traced.ended.stdout, expected);
    expect_all_times(&traced, IN_WINDOWS + OUTSIDE);
}

#[test]
fn client_in_a_program_that_is_not_traced_has_cupti_itself() {
    let expected = alone("cupti_client", &["late"]);
    for (variable, value) in [("GPUTRACE", "off"), ("GPUTRACE_DEVICE_TIMES", "off")] {
        let traced = run("cupti_client").arg("late").env(variable, value).go().expect_code(0);
        assert_eq!(traced.ended.stdout, expected, "{variable}={value}");
    }
}

#[test]
fn client_that_came_first_hears_of_no_call_of_ours() {
    let expected = alone("cupti_hears", &[]);
    assert!(expected.contains("60 of kind 10"), "{expected}");
    let traced = traced("cupti_hears", &[]);
    assert_eq!(traced.ended.stdout, expected);
    expect_all_times(&traced, 60);
}

/// The simulated libcupti knows a client's clock by its offset alone; we know its rate too.
#[test]
fn client_gets_times_in_its_own_clock() {
    let expected = alone("cupti_clock", &["1"]);
    assert_eq!(expected.matches("after until long").count(), 5, "{expected}");
    assert!(expected.contains("timestamp follows"), "{expected}");
    for rate in ["1", "3"] {
        let traced = traced("cupti_clock", &[rate]);
        assert_eq!(traced.ended.stdout, expected, "{rate} ticks a nanosecond");
        expect_all_times(&traced, 51);
    }
}

/// Hooks only from then on, and said; the client finds the place free.
#[track_caller]
fn expect_gave_way(traced: &Traced, to: &str) {
    let report = traced.report();
    assert_eq!(count(&report, "launches"), 12);
    assert_eq!(calls(&report, "first_kernel"), 12);
    assert_eq!(report["kernels"][0]["timed_calls"], 5, "device times up to there: {report:#}");
    let notices = notices(traced);
    assert!(notices.contains(&format!("no device times from here on: {to} took CUPTI over")), "{notices}");
}

#[test]
fn client_of_the_second_interface_gets_cupti_whole() {
    let expected = alone("cupti_other", &["v2"]);
    assert!(expected.contains("7 of kind 10"), "{expected}");
    let traced = traced("cupti_other", &["v2"]);
    assert_eq!(traced.ended.stdout, expected);
    expect_gave_way(&traced, "a client of CUPTI's V2 interface");
}

/// A paused session takes no kernels for itself, so CUPTI makes records for the client alone.
#[test]
fn clients_find_what_they_would_find_alone_in_a_paused_program() {
    for (program, arguments) in [
        ("cupti_client", &["late"][..]),
        ("cupti_client", &["early"]),
        ("cupti_graphs", &[]),
        ("cupti_hears", &[]),
        ("cupti_other", &["v2"]),
    ] {
        let expected = alone(program, arguments);
        let run = run_with(&["--start-paused"], compiled(program, Link::Driver));
        let traced = arguments.iter().fold(run, |run, argument| run.arg(argument)).succeed();
        assert_eq!(traced.ended.stdout, expected, "{program} {arguments:?}");
        let report = traced.report();
        assert_eq!(
            (count(&report, "launches"), dropped(&report)),
            (0, 0),
            "{program} {arguments:?}: {report:#}"
        );
        let paused =
            ["paused_launches", "paused_graph_launches"].map(|what| count(&report["recording"], what));
        assert!(paused.iter().sum::<u64>() > 0, "{program} {arguments:?}: {report:#}");
    }
}

/// A copy of the simulated libcupti; its name may say which version it is.
fn copy_of_cupti(folder: &Folder, name: &str) -> String {
    let copy = folder.join(name);
    fs::copy(tool::simulated_folder().join("libcupti.so"), &copy).unwrap();
    copy.to_str().unwrap().to_owned()
}

/// Triton has 12.8, PyTorch 13.0, which never lets go of the driver.
#[test]
fn client_of_an_older_libcupti_is_served_by_ours() {
    let folder = Folder::new();
    for name in ["libcupti.so", "libcupti.so.version-26"] {
        let copy = copy_of_cupti(&folder, name);
        let expected = alone("cupti_other", &["copy", &copy]);
        assert!(expected.contains("subscribe 0") && expected.contains("7 of kind 10"), "{expected}");
        let traced = traced("cupti_other", &["copy", &copy]);
        assert_eq!(traced.ended.stdout, expected, "{name}");
        expect_all_times(&traced, 12);
    }
}

#[test]
fn client_of_a_newer_libcupti_gets_it_whole_if_ours_is_released() {
    let folder = Folder::new();
    let (ours, theirs) =
        (copy_of_cupti(&folder, "libcupti.so.version-26"), copy_of_cupti(&folder, "libcupti.so.version-28"));
    let expected = alone("cupti_other", &["copy", &theirs]);
    assert!(expected.contains("subscribe 0") && expected.contains("7 of kind 10"), "{expected}");
    let traced = run("cupti_other").arg("copy").arg(&theirs).env("GPUTRACE_CUPTI", &ours).succeed();
    assert_eq!(traced.ended.stdout, expected);
    expect_gave_way(&traced, "a client of another libcupti");
}

/// A program with a PyTorch of that version, whose libtorch_cpu.so has a CUPTI inside: what it prints
/// alone and traced.
fn with_torch(folder: &Folder, version: &str, cupti: Option<&str>) -> (String, Traced) {
    let library = folder.join("torch/lib/libtorch_cpu.so");
    fs::create_dir_all(library.parent().unwrap()).unwrap();
    fs::copy(compiled("inner_cupti", Link::Shared), &library).unwrap();
    let text = format!("from typing import Optional\n__version__ = '{version}'\ndebug = False\n");
    fs::write(folder.join("torch/version.py"), text).unwrap();
    let inner = copy_of_cupti(folder, "inner.so.version-130001");
    let arguments = [library.to_str().unwrap(), &inner];
    let expected = alone("inner_cupti_host", &arguments);
    let run = arguments.iter().fold(run("inner_cupti_host"), |run, argument| run.arg(argument));
    let run = cupti.into_iter().fold(run, |run, path| run.env("GPUTRACE_CUPTI", path));
    (expected, run.succeed())
}

#[test]
fn old_pytorch_keeps_the_cupti_that_is_linked_into_it() {
    let folder = Folder::new();
    let (expected, traced) = with_torch(&folder, "1.13.1+cu117", None);
    assert!(expected.contains("subscribe 0\n") && expected.contains("7 of kind 10"), "{expected}");
    assert_eq!(traced.ended.stdout, expected);
    let report = traced.report();
    assert_eq!((count(&report, "launches"), calls(&report, "first_kernel")), (12, 12));
    assert_eq!(report["kernels"][0]["timed_calls"], 0, "{report:#}");
    let said = "no device times: PyTorch 1.13.1+cu117 has a CUPTI linked in";
    assert!(notices(&traced).contains(said) && traced.ended.stderr.contains(said), "{}", notices(&traced));

    let asked_for = copy_of_cupti(&folder, "libcupti.so");
    expect_all_times(&with_torch(&folder, "1.13.1+cu117", Some(&asked_for)).1, 12);
}

/// Nothing tells us of such a CUPTI: the driver refuses it, as beside any other profiler.
#[test]
fn linked_in_cupti_of_others_is_refused_beside_ours() {
    let (_, traced) = with_torch(&Folder::new(), "2.0.0+cu117", None);
    assert!(traced.ended.stdout.contains("subscribe 39\n"), "{}", traced.ended.stdout);
    expect_all_times(&traced, 12);
}
