//! `gputrace diff`: two traces, or several runs each, compared.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::{Ended, finish};
use crate::harness::tool::{gputrace, report, run, run_command};
use crate::idle_flame::{line, program};
use crate::python_stacks::interpreters;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{name}-h200.gputrace"))
}

fn diff(arguments: &[&str], traces: &[&Path]) -> Ended {
    finish(gputrace().arg("diff").args(arguments).args(traces))
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).expect("it is JSON")
}

/// A figure of the JSON: `before`, `after`.
fn sides(figure: &Value) -> (Option<f64>, Option<f64>) {
    (figure["before"].as_f64(), figure["after"].as_f64())
}

#[test]
fn figures_are_those_of_both_reports() {
    let (old, new) = (fixture("demo"), fixture("pytorch"));
    let compared = json(&diff(&["--format", "json"], &[&old, &new]).expect_code(0));
    let reports = [report(&[old]), report(&[new])];
    let wall =
        compared["totals"].as_array().unwrap().iter().find(|total| total["name"] == "wall_time").unwrap();
    assert_eq!(sides(wall), (reports[0]["wall_ns"].as_f64(), reports[1]["wall_ns"].as_f64()));
    let device = &compared["devices"][0];
    for (name, key) in [("busy", "busy_ns"), ("idle", "idle_at_most_ns")] {
        let of = |report: &Value| report["devices"][0][key].as_f64();
        assert_eq!(sides(&device[name]), (of(&reports[0]), of(&reports[1])), "{name}");
    }
    // Idle causes are all of the idle time, on both sides.
    let causes = device["idle_causes"].as_array().unwrap();
    for side in ["before", "after"] {
        let sum: f64 = causes.iter().map(|cause| cause[side].as_f64().unwrap()).sum();
        assert_eq!(Some(sum), device["idle"][side].as_f64(), "{side}");
    }
    let kernels = compared["kernels"].as_array().unwrap();
    for (side, report) in ["before", "after"].into_iter().zip(&reports) {
        for kernel in report["kernels"].as_array().unwrap() {
            let row = kernels.iter().find(|row| row["full_name"] == kernel["full_name"]).unwrap();
            assert_eq!(row["time"][side].as_f64(), kernel["total_ns"].as_f64(), "{side} {kernel}");
            assert_eq!(row["calls"][side].as_f64(), kernel["calls"].as_f64(), "{side} {kernel}");
        }
    }
    let distances = kernels.iter().map(|row| row["time"]["difference"].as_f64().unwrap().abs());
    assert!(distances.clone().is_sorted_by(|a, b| a >= b), "{:?}", distances.collect::<Vec<_>>());
    assert!(kernels.iter().any(|row| row["only"] == "before"));
    assert!(kernels.iter().any(|row| row["only"] == "after"));
}

#[test]
fn programs_that_differ_by_their_launches_have_different_rows() {
    let (few, many) = (run("basic").succeed(), run("many").succeed());
    let ended = diff(&[], &[&few.output, &many.output]).expect_code(0);
    assert!(
        ended.stdout.contains("one run each: differences below the run-to-run spread"),
        "{}",
        ended.stdout
    );
    let compared = json(&diff(&["--format", "json"], &[&few.output, &many.output]).expect_code(0));
    let launches = |traced: &Path| report(&[traced.to_owned()])["launches"].as_f64();
    let row =
        compared["totals"].as_array().unwrap().iter().find(|total| total["name"] == "launches").unwrap();
    assert_eq!(sides(row), (launches(&few.output), launches(&many.output)));
    let same = diff(&[], &[&few.output, &few.output]).expect_code(0).stdout;
    assert!(!same.contains("only ") && same.contains(" the same"), "{same}");
}

#[test]
fn several_runs_have_intervals_and_single_ones_have_none() {
    let (a, b) = (fixture("demo"), fixture("pytorch"));
    let arguments = |before: &[&Path], after: &[&Path]| {
        let mut command = gputrace();
        command.args(["diff", "--format", "json", "--before"]).args(before).arg("--after").args(after);
        json(&finish(&mut command).expect_code(0))
    };
    let compared = arguments(&[&a, &a], &[&b, &b]);
    assert_eq!((&compared["before"]["runs"], &compared["after"]["runs"]), (&2.into(), &2.into()));
    let wall = &compared["totals"][0];
    assert_eq!(
        (wall["interval"][0].as_f64(), &wall["beyond_noise"]),
        (wall["difference"].as_f64(), &true.into())
    );
    // The spread of these two is as large as their difference to either.
    let wide = arguments(&[&a, &b], &[&b, &b]);
    assert_eq!(wide["totals"][0]["beyond_noise"], false);
    assert!(wide["notes"][0].as_str().unwrap().contains("Welch"));
    let single = arguments(&[&a, &a], &[&b]);
    assert!(single["totals"][0]["interval"].is_null());
    assert!(single["notes"][0].as_str().unwrap().contains("cannot be distinguished from noise"));
}

#[test]
fn conditions_have_their_exit_code_and_are_on_the_page() {
    let (old, new) = (fixture("pytorch"), fixture("demo"));
    let ended = diff(
        &["--format", "markdown", "--fail-on", "kernel_time>5%", "--fail-on", "wall_time>5%"],
        &[&old, &new],
    )
    .expect_code(4);
    assert!(
        ended.stderr.starts_with("gputrace: --fail-on 'kernel_time>5%': kernel_time went from "),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("wall_time"), "the wall time is less: {}", ended.stderr);
    assert!(ended.stdout.contains("- **Failed**: 'kernel\\_time\\>5%'"), "{}", ended.stdout);
    for (condition, code) in [
        ("kernel_time[gemm_*]>1ms", 4),
        ("kernel_time[gemm_*]>1s", 0),
        ("kernel_calls[nothing*]>0", 0),
        ("kernel_calls[gemm_*]>0%", 4),
        ("idle_share>99.9%", 0),
        ("idle_share>30%", 4),
        ("launches<100000", 4),
        ("peak>100%", 0),
    ] {
        let ended = diff(&["--fail-on", condition], &[&old, &new]).expect_code(code);
        assert_eq!(ended.stderr.contains(condition), code == 4, "{condition}: {}", ended.stderr);
    }
    for condition in ["wall_tim>5%", "wall_time[a*]>5%", "wall_time>5GiB", "idle_share>3ms", "wall_time>5"] {
        let ended = diff(&["--fail-on", condition], &[&old, &new]).expect_code(2);
        assert!(ended.stderr.contains("hint: figures: leaked, "), "{condition}: {}", ended.stderr);
    }
    let of_report = |condition: &str| finish(gputrace().args(["report", "--fail-on", condition]).arg(&new));
    of_report("kernel_time[gemm_*]>1ms").expect_code(4);
    let ended = of_report("kernel_time[gemm_*]>1s").expect_code(0);
    assert!(!ended.stderr.contains("no kernel matches"), "{}", ended.stderr);
    let warning = "gputrace: --fail-on 'kernel_time[renamed*]>1s': no kernel matches renamed*\n";
    let ended = of_report("kernel_time[renamed*]>1s").expect_code(0);
    assert!(ended.stderr.contains(warning), "{}", ended.stderr);
    let ended = diff(&["--fail-on", "kernel_time[renamed*]>1s"], &[&old, &new]).expect_code(0);
    assert!(ended.stderr.contains(warning), "{}", ended.stderr);
    let ended = of_report("wall_time>5%").expect_code(2);
    assert!(ended.stderr.contains("% is for two sides: gputrace diff"), "{}", ended.stderr);
}

#[test]
fn what_cannot_be_compared_is_reported_beside_the_rest() {
    let simulated = run("basic").succeed();
    let real = fixture("demo");
    let text = diff(&[], &[&real, &simulated.output]).expect_code(0).stdout;
    assert!(text.contains("simulated device") && text.contains("launches"), "{text}");

    let untimed = run("basic").env("GPUTRACE_DEVICE_TIMES", "off").succeed();
    let ended = diff(
        &["--fail-on", "kernel_time>1%", "--flame", "flame-of-nothing.svg"],
        &[&simulated.output, &untimed.output],
    )
    .expect_code(4);
    assert!(ended.stdout.contains("after: no device times"), "{}", ended.stdout);
    assert!(ended.stdout.contains("host time in CUDA calls"), "{}", ended.stdout);
    assert!(ended.stderr.contains("kernel_time is not known"), "{}", ended.stderr);
    assert!(ended.stderr.contains("flame-of-nothing.svg is not drawn"), "{}", ended.stderr);
    assert!(!Path::new("flame-of-nothing.svg").exists());

    let idle = run("nothing").succeed();
    let ended = diff(&[], &[&idle.output, &simulated.output]);
    assert!(ended.stdout.contains("before: no CUDA work was recorded"), "{}\n{}", ended.stdout, ended.stderr);
}

#[test]
fn bad_traces_are_named() {
    let folder = Folder::new();
    let (good, empty, missing) =
        (fixture("demo"), folder.join("empty.gputrace"), folder.join("none.gputrace"));
    fs::write(&empty, b"").unwrap();
    assert!(diff(&[], &[&missing, &good]).expect_code(66).stderr.contains("none.gputrace"));
    assert!(diff(&[], &[&good, &empty]).expect_code(65).stderr.contains("empty.gputrace"));
    // One of several is left out, on the page too.
    let mut command = gputrace();
    command.args(["diff", "--before"]).args([&missing, &good]).arg("--after").args([&good, &good]);
    let ended = finish(&mut command).expect_code(66);
    assert!(ended.stderr.contains("before: a run was left out: "), "{}", ended.stderr);
    assert!(ended.stdout.contains("before: a run was left out: "), "{}", ended.stdout);
    // A trace that was cut off is compared as far as it goes.
    let whole = fs::read(&good).unwrap();
    let cut = folder.join("cut.gputrace");
    fs::write(&cut, &whole[..whole.len() - 20]).unwrap();
    let ended = diff(&[], &[&good, &cut]).expect_code(3);
    assert!(ended.stdout.contains("after: not everything was recorded or read"), "{}", ended.stdout);
    // A folder of several traces is listed, and none of them is taken.
    for name in ["a", "b"] {
        fs::create_dir_all(folder.join("runs").join(name)).unwrap();
        fs::copy(&good, folder.join("runs").join(name).join("trace.gputrace")).unwrap();
    }
    let ended = diff(&[], &[&folder.join("runs"), &good]).expect_code(2);
    assert!(ended.stderr.contains("none of them was chosen"), "{}", ended.stderr);
    diff(&[], &[&good]).expect_code(2);
    diff(&["--before"], &[&good]).expect_code(2);
}

#[test]
fn drawing_has_both_sides() {
    let folder = Folder::new();
    let (old, new, drawing) = (fixture("demo"), fixture("pytorch"), folder.join("diff.svg"));
    let name = drawing.to_str().unwrap();
    diff(&["--flame", name], &[&old, &new]).expect_code(0);
    let svg = fs::read_to_string(&drawing).unwrap();
    assert!(svg.starts_with("<?xml") && svg.contains(" before, ") && svg.contains(" of GPU time"), "{svg}");
    for part in ["class=\"lost\"", "class=\"gained\"", "gemm_backward", "only before", "only after"] {
        assert!(svg.contains(part), "{part}");
    }
    // A recording is never overwritten.
    let copy = folder.join("copy.gputrace");
    fs::copy(&old, &copy).unwrap();
    diff(&["--flame", copy.to_str().unwrap()], &[&copy, &new]).expect_code(2);
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&old).unwrap());
}

#[test]
fn runs_of_different_lengths_are_the_same_by_step() {
    let Some((_, python)) = interpreters("diff").pop() else { return };
    let of = |function| run_command(&python).arg(program()).arg(function).succeed();
    let (short, long) = (of("steps"), of("more_steps"));
    let compared = json(&diff(&["--format", "json"], &[&short.output, &long.output]).expect_code(0));
    let steps = compared["totals"].as_array().unwrap().iter().find(|total| total["name"] == "steps").unwrap();
    assert_eq!(sides(steps), (Some(30.0), Some(45.0)));
    let tiny = compared["kernels"].as_array().unwrap().iter().find(|row| row["name"] == "tiny").unwrap();
    assert_eq!(sides(&tiny["calls"]), (Some(30.0 * 9.0), Some(45.0 * 9.0)));
    assert_eq!(sides(&tiny["per_step"]["calls"]), (Some(9.0), Some(9.0)));
    assert_eq!(sides(&tiny["per_step"]["time"]), (Some(9.0 * 1_600.0), Some(9.0 * 1_600.0)));
    let at = format!("planted.py:{} steps", line("steps", "first"));
    let first = compared["lines"].as_array().unwrap().iter().find(|row| row["name"] == at.as_str()).unwrap();
    assert_eq!(sides(&first["per_step"]["time"]), (Some(200_000.0), Some(200_000.0)));
    // Each operation has one stack, so the stacks add up to the whole.
    let stacks = compared["stacks"].as_array().unwrap();
    let of = |name: &str| {
        compared["totals"].as_array().unwrap().iter().find(|total| total["name"] == name).unwrap()
    };
    let sum: f64 = stacks.iter().map(|row| row["time"]["difference"].as_f64().unwrap()).sum();
    assert_eq!(
        (Some(sum), &compared["stacks_left_out"]),
        (of("kernel_time")["difference"].as_f64(), &0.into())
    );
    assert!(stacks.iter().all(|row| row["per_step"]["calls"]["before"].is_f64()), "{stacks:#?}");
    let is_tiny = |row: &&Value| row["name"].as_str().unwrap().ends_with(";tiny");
    assert!(stacks.iter().filter(is_tiny).count() >= 3, "{stacks:#?}");
    let page = diff(&[], &[&short.output, &long.output]).expect_code(0).stdout;
    assert!(page.contains("Stacks, per step"), "{page}");
    assert!(page.contains("Kernels, per step") && page.contains("2 kernels the same"), "{page}");
}
