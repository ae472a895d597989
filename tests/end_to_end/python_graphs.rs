//! Kernels of replayed graphs: charged to the line that captured or built them, or to the replay's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::process::finish;
use crate::harness::tool::{Traced, gputrace, run_command, run_with};
use crate::python_stacks::interpreters;

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/python_graphs.py")
}

fn line(mark: &str) -> usize {
    let text = fs::read_to_string(program()).unwrap();
    let mark = format!("  # {mark}");
    1 + text.lines().position(|line| line.ends_with(&mark)).unwrap_or_else(|| panic!("no {mark}"))
}

/// By kernel: the innermost frame of Python before the graph's launch, and microseconds.
fn charged(folded: &str) -> BTreeMap<String, Vec<(String, u64)>> {
    let mut charged: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
    for line in folded.lines() {
        let (stack, us) = line.rsplit_once(' ').unwrap();
        if let Some((callers, kernel)) = stack.split_once(";cuGraphLaunch;") {
            let innermost = callers.rsplit(';').next().unwrap().to_owned();
            charged.entry(kernel.to_owned()).or_default().push((innermost, us.parse().unwrap()));
        }
    }
    charged
}

fn of_makers(minor: u32) -> BTreeMap<String, Vec<(String, u64)>> {
    let at = |function: &str, mark: &str| format!("{function} python_graphs.py:{}", line(mark));
    let work = if minor >= 11 { "on_another_thread.<locals>.work" } else { "work" };
    let makers = [
        ("first", "captured"),
        ("second", "captured"),
        ("cloned", "cloned"),
        ("before", "updated"),
        ("after", "updated"),
        ("inner", "nested"),
        ("outer", "nested"),
        ("held", "child"),
        ("around", "child"),
        ("built", "built"),
        ("elsewhere", work),
    ];
    makers
        .iter()
        .map(|(kernel, function)| {
            let replays = if *kernel == "before" { 1 } else { 3 };
            ((*kernel).to_owned(), vec![(at(function, kernel), 10 * replays)])
        })
        .collect()
}

fn traced(python: &Path) -> Traced {
    run_command(python).arg(program()).go().expect_code(0)
}

#[test]
fn kernels_of_replayed_graphs_are_charged_to_the_lines_that_made_them() {
    for (minor, python) in
        interpreters("python_graphs::kernels_of_replayed_graphs_are_charged_to_the_lines_that_made_them")
    {
        let traced = traced(&python);
        assert_eq!(charged(&traced.read("flame.folded")), of_makers(minor), "Python 3.{minor}");

        // Other lines replayed them.
        let report = traced.report();
        let of_line = |mark: &str| {
            let number = line(mark) as u64;
            let lines = report["lines"].as_array().unwrap().iter();
            lines.filter(|line| line["line"] == number).cloned().collect::<Vec<_>>().remove(0)
        };
        let replay = of_line("replay");
        assert_eq!((&replay["charged_calls"], &replay["charged_ns"]), (&0.into(), &serde_json::Value::Null));
        let replayed = (10 - 1) * 3 + 1 + 3;
        assert_eq!(replay["charged_replayed_calls"], replayed, "{replay:#}");
        assert_eq!(replay["charged_replayed_ns"], replayed * 10_000);
        let first = of_line("first");
        assert_eq!((&first["charged_calls"], &first["charged_ns"]), (&3.into(), &30_000.into()));
        assert_eq!(first["replayed_calls"], 0);
        assert_eq!(of_line("replay before")["replayed_ns"], 10_000);

        // Both at once, and none is lost.
        let folded = |view: &str| {
            let arguments = ["flamegraph", "--folded", "--graphs", view];
            finish(gputrace().args(arguments).arg(traced.trace())).expect_code(0).stdout
        };
        assert_eq!(folded("capture"), traced.read("flame.folded"));
        let replay = format!("replay python_graphs.py:{}", line("replay"));
        for (kernel, of_replays) in charged(&folded("replay")) {
            let us: u64 = of_replays.iter().map(|(_, us)| us).sum();
            assert!(of_replays.iter().all(|(innermost, _)| *innermost == replay), "{of_replays:?}");
            assert_eq!(us, of_makers(minor)[&kernel][0].1, "{kernel}");
        }
    }
}

/// A launch that is one record is charged to what ended the capture, whose line is the user's.
#[test]
fn graphs_timed_as_a_whole_are_charged_to_the_lines_that_captured_them() {
    let test = "python_graphs::graphs_timed_as_a_whole_are_charged_to_the_lines_that_captured_them";
    for (minor, python) in interpreters(test) {
        let traced = run_with(&["--graph-times", "graph"], &python).arg(program()).go().expect_code(0);
        let folded = traced.read("flame.folded");
        let mut makers: BTreeMap<String, (String, u64)> = BTreeMap::new();
        for line in folded.lines() {
            let (stack, us) = line.rsplit_once(' ').unwrap();
            let Some((callers, graph)) = stack.split_once(";cuGraphLaunch;") else { continue };
            // Not the capture's two own functions, but who called them.
            let maker = callers.rsplit(';').find(|frame| !frame.starts_with("end ")).unwrap();
            let function = maker.split(' ').next().unwrap().to_owned();
            let nodes = graph.rsplit_once(" (").unwrap().1.to_owned();
            assert!(graph.starts_with("graph "), "{graph}");
            makers.entry(function).or_insert((nodes, 0)).1 += us.parse::<u64>().unwrap();
        }
        let expected = [
            ("built", "1 node)", 30),
            ("captured", "2 nodes)", 60),
            // Its two nodes run at once.
            ("child", "2 nodes)", 30),
            ("cloned", "1 node)", 30),
            ("nested", "2 nodes)", 60),
            ("on_another_thread", "1 node)", 30),
            ("updated", "1 node)", 40),
        ];
        let expected = expected.map(|(function, nodes, us)| (function.to_owned(), (nodes.to_owned(), us)));
        assert_eq!(makers, BTreeMap::from(expected), "Python 3.{minor}\n{folded}");
    }
}
