//! `scripts/bench-overhead --in-process`: it switches a program between all states, and finds a cost that is
//! planted in one of them in spite of a drift.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::process::finish;
use crate::harness::tool::{clean_command, gputrace};

#[test]
fn planted_cost_of_one_state_is_found_in_spite_of_a_drift() {
    if Command::new("python3").arg("--version").output().is_err() {
        return needs::skipped("in_process::planted_cost_…", "there is no python3");
    }
    let folder = Folder::new();
    let mut bench = clean_command("python3");
    bench.env("PYTHONDONTWRITEBYTECODE", "1");
    bench.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/bench-overhead"));
    bench.args(["--in-process", "--workloads", "tiny", "--switches", "60", "--processes", "1"]);
    let has_gcc = Command::new("gcc").arg("--version").output().is_ok();
    bench.args((!has_gcc).then_some("--no-client")).arg("--builds").arg(folder.join("builds"));
    bench.args(["--run-options=--simulate", "--program-options=--plant full=0.2 --drift 0.01", "--bin"]);
    bench.arg(gputrace().get_program()).arg("--out").arg(folder.path());
    let ended = finish(&mut bench).expect_code(0);
    let shown = &ended.stdout;
    assert!(shown.contains("| tiny | full | 1.1") || shown.contains("| tiny | full | 1.2"), "{shown}");
    let written = std::fs::read_to_string(folder.join("in-process.json")).unwrap();
    let written: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(written["blocks"]["tiny"][0].as_array().unwrap().len(), 60);
    let figures = written["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 7 + usize::from(has_gcc), "{figures:#?}");
    for state in figures.iter().filter(|state| state["state"] != "paused") {
        assert!(state["mean"]["ratio"].is_number() && state["thread"]["ratio"].is_number(), "{state}");
        let ratio = state["ratio"].as_f64().unwrap();
        let [low, high] = ["low", "high"].map(|end| state[end].as_f64().unwrap());
        assert!(low <= ratio && ratio <= high, "{state}");
        match state["state"] == "full" {
            // Other tests run beside this one: what they take is in the intervals.
            true => assert!((1.12..1.28).contains(&ratio) && low > 1.0, "{state}"),
            false => assert!((0.95..1.05).contains(&ratio) || (low < 1.0 && high > 1.0), "{state}"),
        }
    }
    let mut pool = clean_command("python3");
    pool.env("PYTHONDONTWRITEBYTECODE", "1");
    pool.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/bench-overhead"));
    pool.args(["--in-process", "--pool"]).arg(folder.join("in-process.json"));
    assert_eq!(finish(&mut pool).expect_code(0).stdout.trim(), shown.trim());
}

/// Where a machine's speed wanders from block to block, intervals contain the planted effects.
#[test]
fn intervals_contain_planted_effects_in_the_noise_of_a_shared_machine() {
    if Command::new("python3").arg("--version").output().is_err() {
        return needs::skipped("in_process::intervals_contain_…", "there is no python3");
    }
    let mut trial = clean_command("python3");
    trial.env("PYTHONDONTWRITEBYTECODE", "1");
    trial.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu"));
    let ended = finish(trial.args(["-m", "harness.paired_synthetic", "300"])).expect_code(0);
    assert!(ended.stdout.contains("contain the effect"), "{}", ended.stdout);
}
