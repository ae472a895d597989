//! Python's lines in what people see: the flamegraph, the summary's table, the JSON, a failure.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::process::finish;
use crate::harness::tool::{Traced, count, gputrace, run_command};
use crate::python_stacks::interpreters;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/python_flame")
}

/// The line of a file that ends in that comment.
fn line(file: &str, mark: &str) -> usize {
    let path = match file {
        "train.py" => folder().join(file),
        file => folder().join("site-packages/kit").join(file),
    };
    let text = fs::read_to_string(path).unwrap();
    let mark = format!("  # {mark}");
    1 + text.lines().position(|line| line.ends_with(&mark)).unwrap_or_else(|| panic!("{mark} in {file}"))
}

fn train(python: &Path, how: &str) -> Traced {
    run_command(python).arg(folder().join("train.py")).arg(how).go()
}

/// Function names have their class in front from 3.11 on.
fn function(minor: u32, class: &str, name: &str) -> String {
    if minor >= 11 { format!("{class}.{name}") } else { name.to_owned() }
}

#[test]
fn training_loops_time_is_under_its_lines() {
    for (minor, python) in interpreters("python_flame::training_loops_time_is_under_its_lines") {
        let traced = train(&python, "steps").expect_code(0);
        let (train, linear, fused, optim) = ("train.py", "linear.py", "fused/linear.py", "optim.py");
        let at = |label: &str, file: &str, mark: &str| format!("{label}:{}", line(file, mark));
        let root = format!(
            "main;<module> {};main {};train_step ",
            at(train, train, "main"),
            at(train, train, "train"),
        );
        let forward = at(train, train, "forward");
        let mut expected = [
            format!("{root}{};cuLaunchKernel;add 50", at(train, train, "add")),
            format!(
                "{root}{forward};{} {};cuLaunchKernel;gemm 400",
                function(minor, "Linear", "forward"),
                at("kit/linear.py", linear, "gemm"),
            ),
            format!(
                "{root}{forward};{} {};cuLaunchKernel;fused 350",
                function(minor, "FusedLinear", "forward"),
                at("fused/linear.py", fused, "fused"),
            ),
            format!(
                "{root}{};{} {};{} {};cuLaunchKernel;adam 250",
                at(train, train, "step"),
                function(minor, "Adam", "step"),
                at(optim, optim, "update"),
                function(minor, "Adam", "_update"),
                at(optim, optim, "adam"),
            ),
        ];
        expected.sort();
        let folded = traced.read("flame.folded");
        // The process is called by its program, which may be the loader of an unpacked interpreter.
        let mut lines: Vec<&str> = folded.lines().map(|line| line.split_once(';').unwrap().1).collect();
        lines.sort_unstable();
        assert_eq!(lines, expected, "Python 3.{minor}");

        let report = traced.report();
        let charged: Vec<(String, u64, u64)> = report["lines"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|line| line["charged_calls"] != 0)
            .map(|line| {
                let number = |field: &str| line[field].as_u64().unwrap();
                (
                    format!("{}:{}", line["file"].as_str().unwrap(), line["line"]),
                    number("charged_calls"),
                    number("charged_ns"),
                )
            })
            .collect();
        let step = at(train, train, "step");
        let expected = [(forward, 15, 750_000), (step, 10, 250_000), (at(train, train, "add"), 5, 50_000)];
        assert_eq!(charged, expected, "Python 3.{minor}: {report:#}");
        let gemm = find(&report, line(linear, "gemm"), "kit/linear.py");
        assert_eq!(
            (&gemm["self_calls"], &gemm["self_ns"], &gemm["own"]),
            (&10.into(), &400_000.into(), &false.into())
        );
        assert_eq!(Path::new(gemm["path"].as_str().unwrap()), folder().join("site-packages/kit/linear.py"));
        assert!(traced.read("summary.txt").contains(&format!("{} train_step ", at(train, train, "forward"))));
    }
}

fn find<'a>(report: &'a Value, line: usize, file: &str) -> &'a Value {
    let lines = report["lines"].as_array().unwrap();
    let found = lines.iter().find(|entry| entry["line"] == line && entry["file"] == file);
    found.unwrap_or_else(|| panic!("{file}:{line} in {report:#}"))
}

#[test]
fn lines_are_the_same_live_and_from_the_file() {
    let Some((_, python)) = interpreters("python_flame::lines_are_the_same_live_and_from_the_file").pop()
    else {
        return;
    };
    let traced = train(&python, "steps").expect_code(0);
    let from_file =
        |arguments: &[&str]| finish(gputrace().args(arguments).arg(traced.trace())).expect_code(0).stdout;
    assert_eq!(from_file(&["flamegraph", "--folded"]), traced.read("flame.folded"));
    assert_eq!(from_file(&["flamegraph"]), traced.read("flame.svg"));
    assert_eq!(from_file(&["report"]), traced.read("summary.txt"));
    assert!(traced.read("flame.svg").contains("train_step train.py:"));
}

#[test]
fn fault_is_reported_with_the_lines_that_led_to_it() {
    for (minor, python) in interpreters("python_flame::fault_is_reported_with_the_lines_that_led_to_it") {
        let traced = train(&python, "fault").expect_code(3);
        let words = traced.read("summary.txt").split_whitespace().collect::<Vec<_>>().join(" ");
        let at = |mark| {
            format!(
                "train.py:{} fault, called from train.py:{} <module>",
                line("train.py", mark),
                line("train.py", "main fault")
            )
        };
        let waited = format!("at {}", at("wait"));
        let launched = format!("the oldest at {}", at("bad"));
        assert!(words.contains(&waited) && words.contains(&launched), "Python 3.{minor}: {words}");
        let report = traced.report();
        let frame = &report["failures"][0]["stack"][0];
        assert_eq!((&frame["function"], &frame["line"]), (&"fault".into(), &line("train.py", "wait").into()));
        let newest = &report["in_flight"][0]["newest_first"][0];
        assert_eq!(newest["stack"][0]["line"], line("train.py", "after"), "{report:#}");
    }
}

/// With a GIL and, where such an interpreter is named for the tests (scripts/free-threaded-python), without.
#[test]
fn code_that_threads_make_and_drop_keeps_its_lines() {
    const ROUNDS: u64 = 250;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/python_churn.py");
    // "f3 gen7.py:12;" once for each level of the recursion.
    let one = |round: u64| format!("f{} gen{}.py:{};", round % 7, round % 13, round % 50 + 2);
    for (minor, python) in interpreters("python_flame::code_that_threads_make_and_drop_keeps_its_lines") {
        let traced = run_command(&python).arg(&script).arg(ROUNDS.to_string()).succeed();
        let folded = traced.read("flame.folded");
        let mut actual: Vec<_> = folded
            .lines()
            .map(|line| {
                let (_, stack) = line.split_once(";work python_churn.py:").expect(line);
                let (_, stack) = stack.split_once(';').expect(line);
                let (stack, _) = stack.split_once("launch python_churn.py:").expect(line);
                stack.to_owned()
            })
            .collect();
        actual.sort_unstable();
        let mut expected: Vec<_> = (0..ROUNDS)
            .map(|round| one(round).repeat(round as usize % 40 + 1))
            .flat_map(|stack| std::iter::repeat_n(stack, 8))
            .collect();
        expected.sort_unstable();
        assert!(actual == expected, "Python 3.{minor}: {} stacks\n{folded}", actual.len());
        assert_eq!(count(&traced.report(), "launches"), ROUNDS * 8);
    }
}

#[test]
fn odd_names_of_functions_and_files_keep_lines_whole() {
    for (minor, python) in interpreters("python_flame::odd_names_of_functions_and_files_keep_lines_whole") {
        let traced = train(&python, "odd").expect_code(0);
        let folded = traced.read("flame.folded");
        let ends: Vec<&str> = folded.lines().map(|line| line.splitn(5, ';').nth(4).unwrap()).collect();
        let expected = [
            r"<module> new\nfile 7.py:3;new\nline new\nfile 7.py:2;cuLaunchKernel;add 10",
            "<module> x:y.py:3;a:b x:y.py:2;cuLaunchKernel;add 10",
            "<module> данные.py:3;größe данные.py:2;cuLaunchKernel;add 10",
        ];
        assert_eq!(ends, expected, "Python 3.{minor}: {folded}");
    }
}
