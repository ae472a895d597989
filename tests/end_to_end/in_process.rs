//! `scripts/bench-overhead --in-process`: it switches a program between all states, and finds a cost that is
//! planted in one of them in spite of a drift. And what a program sees of a hook, by launches past it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::process::finish;
use crate::harness::tool::{clean_command, gputrace};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Python, which leaves no files beside the scripts.
fn python() -> Command {
    let mut python = clean_command("python3");
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python
}

fn has_gcc() -> bool {
    Command::new("gcc").arg("--version").output().is_ok()
}

#[test]
fn planted_cost_of_one_state_is_found_in_spite_of_a_drift() {
    if !needs::python("in_process::planted_cost_…") {
        return;
    }
    let folder = Folder::new();
    let mut bench = python();
    bench.arg(root().join("scripts/bench-overhead"));
    bench.args(["--in-process", "--workloads", "tiny", "--switches", "60", "--processes", "1"]);
    let has_gcc = has_gcc();
    bench.args((!has_gcc).then_some("--no-client")).arg("--builds").arg(folder.join("builds"));
    bench.args(["--run-options=--simulate", "--program-options=--plant full=0.2 --drift 0.01", "--bin"]);
    bench.arg(gputrace().get_program()).arg("--out").arg(folder.path());
    let ended = finish(&mut bench).expect_code(0);
    let shown = &ended.stdout;
    // Options are part of the workload's name, so that runs with others are not pooled with this one.
    let name = "tiny --simulate --plant full=0.2 --drift 0.01";
    let row = shown.lines().find(|line| line.starts_with(&format!("| {name} | full |"))).expect(shown);
    let quartile = row.split('|').nth(5).unwrap().trim();
    assert!(["1.1", "1.2"].iter().any(|from| quartile.starts_with(from)), "{shown}");
    let written = std::fs::read_to_string(folder.join("in-process.json")).unwrap();
    let written: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(written["blocks"][name][0].as_array().unwrap().len(), 60);
    let figures = written["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 7 + usize::from(has_gcc), "{figures:#?}");
    for state in figures.iter().filter(|state| state["state"] != "paused") {
        assert!(state["same_speed"]["ratio"].is_number() && state["samples"]["ratio"].is_number(), "{state}");
        let of = |found: &Value| ["ratio", "low", "high"].map(|name| found[name].as_f64().unwrap());
        // Other tests run beside this one. By the mean what they take is in the intervals.
        let [ratio, low, high] = of(state);
        let (least, most) = if state["state"] == "full" { (1.12, 1.28) } else { (0.95, 1.05) };
        assert!(low <= ratio && ratio <= high && low < most && high > least, "{state}");
        // The lower quartile of a block's steps has little of it.
        let [ratio, low, high] = of(&state["quartile"]);
        assert!(low <= ratio && ratio <= high, "{state}");
        match state["state"] == "full" {
            true => assert!((1.12..1.28).contains(&ratio) && low > 1.0, "{state}"),
            false => assert!((0.95..1.05).contains(&ratio) || (low < 1.0 && high > 1.0), "{state}"),
        }
    }
    assert_eq!(pooled(&folder.join("in-process.json")).trim(), shown.trim());
}

/// The table of such a file.
fn pooled(file: &Path) -> String {
    let mut pool = python();
    pool.arg(root().join("scripts/bench-overhead"));
    finish(pool.args(["--in-process", "--pool"]).arg(file)).expect_code(0).stdout
}

/// Where a machine's speed wanders from block to block, intervals contain the planted effects.
#[test]
fn intervals_contain_planted_effects_in_the_noise_of_a_shared_machine() {
    if !needs::python("in_process::intervals_contain_…") {
        return;
    }
    let mut trial = python();
    trial.current_dir(root().join("tests/gpu"));
    let ended = finish(trial.args(["-m", "harness.paired_synthetic", "300"])).expect_code(0);
    assert!(ended.stdout.contains("contain the effect"), "{}", ended.stdout);
}

/// What a hook costs is found in made times of launches, and of a made hook of a microsecond, or of none.
#[test]
fn planted_hook_is_found_by_launches_that_go_past_it() {
    if !needs::python("in_process::planted_hook_…") {
        return;
    }
    if !has_gcc() {
        return needs::skipped("in_process::planted_hook_…", "there is no gcc");
    }
    let folder = Folder::new();
    let mut trial = python();
    trial.current_dir(root().join("tests/gpu"));
    trial.args(["-m", "harness.hook_bypass_synthetic"]).arg(folder.path());
    let ended = finish(&mut trial).expect_code(0);
    assert!(ended.stdout.contains("no hook: "), "{}", ended.stdout);
}

/// Launches that go past the hook are in no trace, and all others are.
#[test]
fn launches_past_the_hook_are_in_no_trace() {
    if !needs::python("in_process::launches_past_…") {
        return;
    }
    if !has_gcc() {
        return needs::skipped("in_process::launches_past_…", "there is no gcc");
    }
    let (folder, tests) = (Folder::new(), root().join("tests"));
    let built = |source: &str, name: &str| {
        let mut compiler = clean_command("gcc");
        compiler.args(["-O2", "-shared", "-fPIC"]).arg(tests.join(source)).arg("-o").arg(folder.join(name));
        finish(&mut compiler).expect_code(0);
        folder.join(name)
    };
    let library = built("programs/past_the_hook.c", "launches.so");
    let bypass = built("gpu/hook_bypass.c", "bypass.so");
    let out = folder.join("out");
    let mut traced = gputrace();
    traced.env("PYTHONDONTWRITEBYTECODE", "1");
    traced.args(["run", "--simulate", "--device-times", "off", "-o"]).arg(&out).args(["--", "python3"]);
    traced
        .arg(tests.join("programs/past_the_hook.py"))
        .arg(tests.join("gpu/programs"))
        .args([library, bypass]);
    let ended = finish(&mut traced).expect_code(0);
    let counts: Vec<u64> = ended.stdout.split_whitespace().map(|count| count.parse().unwrap()).collect();
    // The first launch after each choice, some 400, is not a sample; nor is the last launch.
    assert!((19_400..19_700).contains(&counts[0]) && (5_000..15_000).contains(&counts[2]), "{counts:?}");
    assert!(counts[1] <= counts[2] && counts[2] - counts[1] < 400, "{counts:?}");
    let mut report = gputrace();
    let report = finish(report.args(["report", "--json"]).arg(&out)).expect_code(0).stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["launches"].as_u64().unwrap() - 200, 20_000 - counts[2], "{counts:?}");
}
