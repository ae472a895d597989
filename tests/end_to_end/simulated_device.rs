//! `--simulate` and `demo`: labelled, refusing what they cannot do, and working without a GPU.

use std::fs;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{calls, count, gputrace, report, run};

#[test]
fn the_demo_works_and_says_what_it_ran_on() {
    let folder = Folder::new();
    let ended = finish(gputrace().args(["demo", "-o"]).arg(folder.join("out"))).expect_code(0);
    let report: Value = report(&[folder.join("out/trace.gputrace")]);
    let simulated = report["simulated"].as_bool().unwrap();
    let says = if simulated { "simulated device" } else { "real device" };
    assert!(ended.stderr.contains(says), "{}", ended.stderr);
    assert_eq!(count(&report, "launches"), 240);
    assert_eq!(count(&report, "captured_launches"), 4);
    assert_eq!(count(&report, "graph_launches"), 40);
    for kernel in ["gemm_forward", "softmax", "gemm_backward", "adam_step"] {
        assert_eq!(calls(&report, kernel), 100, "{kernel}");
    }
    assert!(fs::read_to_string(folder.join("out/flame.folded")).unwrap().contains("gemm_backward"));
}

#[test]
fn every_output_of_a_simulated_run_says_so() {
    let traced = run("basic").succeed();
    assert_eq!(traced.report()["simulated"], true);
    for name in ["summary.txt", "flame.svg"] {
        assert!(traced.read(name).to_lowercase().contains("simulated"), "{name}");
    }
}

#[test]
fn a_runtime_api_program_gets_a_clear_refusal() {
    let traced = run("runtime_api").go().expect_code(4);
    let talk = traced.ended.stderr.to_lowercase();
    assert!(talk.contains("simulated") && talk.contains("cuda runtime"), "{talk}");
}

#[test]
fn several_simulated_devices_are_told_apart() {
    let traced = run("basic").env("GPUTRACE_SIM_DEVICES", "3").succeed();
    assert_eq!(count(&traced.report(), "launches"), 10);
}

#[test]
fn a_driver_that_fails_is_the_program_s_business() {
    let mut command = gputrace();
    let folder = Folder::new();
    command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).arg("--");
    command.arg(compiled("basic", Link::Driver)).env("GPUTRACE_SIM_FAIL", "cuInit:1=100");
    let ended = finish(&mut command).expect_code(99);
    assert!(ended.stderr.contains("cuInit"), "{}", ended.stderr);
    assert_eq!(count(&report(&[folder.join("out/trace.gputrace")]), "launches"), 0);
}
