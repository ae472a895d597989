//! Findings: one names the planted fault and its line, and the mended program does not have it.

use serde_json::{Value, json};

use crate::harness::process::finish;
use crate::harness::tool::{gputrace, run_command, run_with};
use crate::idle_flame::{line, program};
use crate::python_stacks::interpreters;

/// The rules of the findings in their order.
struct Found {
    rules: Vec<String>,
    report: Value,
    summary: String,
}

fn findings(fault: &str) -> Option<Found> {
    // One version is enough: what differs between versions is the reading of stacks.
    let (_, python) = interpreters("findings").pop()?;
    let traced = run_command(&python).arg(program()).arg(fault).succeed();
    let report = traced.report();
    let list = report["findings"]["list"].as_array().unwrap_or_else(|| panic!("{report:#}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rules = list.iter().map(|finding| text(&finding["rule"])).collect();
    Some(Found { rules, summary: traced.summary_words(), report })
}

/// A finding is of that rule and names that line first. It is the first one, unless the machine is so busy
/// that the program's pauses weigh more.
#[track_caller]
fn has(fault: &str, rule: &str, mark: &str) {
    let Some(found) = findings(fault) else { return };
    let Found { rules, report, summary } = &found;
    let at = rules.iter().position(|found| found == rule);
    let at = at.unwrap_or_else(|| panic!("{rule}: {:#}", report["findings"]));
    let before_it = &rules[..at];
    let are_pauses = before_it.iter().all(|rule| rule == "slow_host_code" || rule == "data_loading");
    assert!(are_pauses, "{before_it:?} {:#}", report["findings"]);
    let first = &report["findings"]["list"][at];
    let line_at = &first["lines"][0];
    assert_eq!(
        (&line_at["file"], &line_at["line"]),
        (&json!("planted.py"), &json!(line(fault, mark))),
        "{first:#}"
    );
    assert!(summary.contains(first["title"].as_str().unwrap()), "{summary}");
    assert!(summary.contains(first["advice"].as_str().unwrap()), "{summary}");
    let (saves, share) = (first["saves_ns"].as_u64().unwrap(), first["saves_share"].as_f64().unwrap());
    let span = report["findings"]["span_ns"].as_u64().unwrap();
    assert!((share - saves as f64 / span as f64).abs() < 1e-9 && saves <= span, "{first:#}");
}

#[track_caller]
fn has_not(program: &str, rules: &[&str]) {
    let Some(found) = findings(program) else { return };
    let spoken: Vec<&String> = found.rules.iter().filter(|rule| rules.contains(&rule.as_str())).collect();
    assert!(spoken.is_empty(), "{spoken:?} {:#}", found.report["findings"]);
}

#[test]
fn launches_that_take_longer_than_kernels() {
    has("tiny_kernels", "launch_bound", "tiny");
    has_not("tiny_kernels_mended", &["launch_bound", "slow_host_code", "sync_in_loop"]);
}

#[test]
fn waits_in_a_loop() {
    has("sync_in_loop", "sync_in_loop", "wait");
}

#[test]
fn host_code_that_the_gpu_waits_for() {
    has("slow_host", "slow_host_code", "before");
}

/// The generator makes no call of CUDA: what shows it is that the loop goes back to its begin meanwhile.
#[test]
fn data_that_a_loop_waits_for() {
    let Some(found) = findings("slow_loader") else { return };
    let first = &found.report["findings"]["list"][0];
    assert_eq!(first["rule"], "data_loading", "{:#}", found.report["findings"]);
    let lines = [line("train_on", "train"), line("train_on", "load")];
    assert_eq!([&first["lines"][0]["line"], &first["lines"][1]["line"]], [&lines[0], &lines[1]], "{first:#}");
    assert!(
        first["title"].as_str().unwrap().ends_with("from the end of a loop's round to the begin of the next")
    );
    assert!(first["advice"].as_str().unwrap().starts_with("In this time the loop gets its next item"));
    has_not("slow_loader_mended", &["data_loading", "slow_host_code"]);
}

#[test]
fn default_stream_that_others_wait_for() {
    let Some(found) = findings("default_stream") else { return };
    let first = &found.report["findings"]["list"][0];
    assert_eq!(first["rule"], "default_stream", "{:#}", found.report["findings"]);
    assert_eq!(first["lines"][0]["line"], line("take_turns", "default"), "{first:#}");
    // Two times 200 kernels of 200 µs, of which half would run beside the others.
    let saves_ns = first["saves_ns"].as_u64().unwrap();
    assert!((39_000_000..=41_000_000).contains(&saves_ns), "{first:#}");
    assert!(first["title"].as_str().unwrap().contains("took turns 399 times"), "{first:#}");
    has_not("default_stream_mended", &["default_stream"]);
}

#[test]
fn copies_from_pageable_memory() {
    has("pageable_copies", "pageable_copies", "copy");
    // Among more copies of pinned memory at another line.
    has("mixed_copies", "pageable_copies", "copy");
    has_not("pageable_copies_mended", &["pageable_copies", "copies_not_overlapped"]);
}

#[test]
fn memory_that_is_allocated_in_a_loop() {
    has("allocator_churn", "allocator_churn", "allocate");
}

#[test]
fn code_that_is_loaded_all_the_time() {
    has("late_modules", "recompilation", "load");
}

#[test]
fn small_copies_in_a_loop() {
    has("small_copies", "small_copies", "copy");
}

#[test]
fn kernel_that_leaves_multiprocessors_unused() {
    let Some(found) = findings("small_grid") else { return };
    assert_eq!(found.rules, ["small_grid"], "{:#}", found.report["findings"]);
    assert!(found.summary.contains("step has 4 blocks for 132 multiprocessors"), "{}", found.summary);
}

#[test]
fn finding_on_small_blocks_names_the_best_block_of_the_driver() {
    let Some((_, python)) = interpreters("findings").pop() else { return };
    let traced = run_command(&python).arg(program()).arg("small_blocks").succeed();
    let report = traced.report();
    let list = report["findings"]["list"].as_array().unwrap();
    assert_eq!(list.len(), 1, "{list:#?}");
    assert_eq!(list[0]["rule"], "small_blocks");
    assert_eq!(report["kernels"][0]["occupancy_limits"], json!(["blocks"]));
    let best = report["kernels"][0]["best_block_threads"].as_u64().unwrap();
    assert!(best > 32 && traced.ended.stdout.contains(&format!("best block {best}\n")), "{best}");
}

#[test]
fn rank_that_the_others_wait_for() {
    let Some((_, python)) = interpreters("findings").pop() else { return };
    let (python, program) = (python.display(), program());
    let run = |rank| format!("RANK={rank} {python} {} slow_rank & ", program.display());
    let script = [0, 1, 2].map(run).concat() + "wait";
    let report = run_command("/bin/sh").arg("-c").arg(script).succeed().report();
    let list = report["findings"]["list"].as_array().unwrap();
    // Where the machine is busy, the ranks' host code may take longer, and then comes first.
    let at = list.iter().position(|finding| finding["rule"] == "slow_rank");
    let at = at.unwrap_or_else(|| panic!("{list:#?}"));
    let (found, saves_ns) = (&list[at], |finding: &Value| finding["saves_ns"].as_u64().unwrap());
    assert!(list[..at].iter().all(|other| saves_ns(other) >= saves_ns(found)), "{list:#?}");
    let title = found["title"].as_str().unwrap();
    assert!(title.starts_with("The process of rank 1 is the one that others wait for"), "{title}");
    assert!(title.ends_with("take 5.00 ms, those of the others 90.0 ms on average"), "{title}");
}

#[test]
fn busy_program_has_no_finding_and_says_what_it_is_busy_with() {
    let Some(found) = findings("busy") else { return };
    assert_eq!(found.rules, [""; 0], "{:#}", found.report["findings"]);
    let busy = found.summary.split_once("Findings none: busy ").expect(&found.summary).1;
    let busy: f64 = busy.split_once('%').unwrap().0.parse().unwrap();
    assert!(busy > 90.0, "{}", found.summary);
    assert!(found.summary.contains("100% of the kernels' time in step"), "{}", found.summary);
}

/// A C++ program has no stacks unless native ones are asked for.
#[test]
fn programs_without_stacks_have_the_same_findings_without_lines() {
    let Some((_, python)) = interpreters("findings").pop() else { return };
    for (fault, rule) in [
        ("sync_in_loop", "sync_in_loop"),
        ("slow_host", "slow_host_code"),
        ("tiny_kernels", "launch_bound"),
        ("pageable_copies", "pageable_copies"),
    ] {
        let run = run_with(&["--stacks", "none"], &python).arg(program()).arg(fault);
        let report = run.succeed().report();
        let list = report["findings"]["list"].as_array().unwrap();
        let found = list.iter().find(|finding| finding["rule"] == rule);
        let found = found.unwrap_or_else(|| panic!("{fault}: {list:#?}"));
        assert_eq!(found["lines"], json!([]), "{fault}");
    }
}

/// What happened while nothing was recorded is not known.
#[test]
fn session_that_was_paused_has_no_findings_and_no_idle_time() {
    let Some((_, python)) = interpreters("findings").pop() else { return };
    let traced =
        run_with(&["--capture-range", "launches:50-200"], &python).arg(program()).arg("steps").succeed();
    let report = traced.report();
    assert!(report["recording"]["recorded_ns"].as_u64().unwrap() > 0, "{report:#}");
    assert!(report.get("findings").is_none() && report["devices"][0]["idle"].is_null(), "{report:#}");
    assert!(!traced.output.join("flame-idle.svg").exists());
}

#[test]
fn steps_of_a_loop_have_their_mean_and_the_longest() {
    let Some((_, python)) = interpreters("findings").pop() else { return };
    let traced = run_command(&python).arg(program()).arg("steps").succeed();
    let report = traced.report();
    let steps = &report["steps"][0];
    assert_eq!(steps["steps"], 30, "{steps:#}");
    assert_eq!(steps["first_line"]["line"], line("steps", "first"), "{steps:#}");
    let (mean, longest) = (steps["mean_ns"].as_f64().unwrap(), steps["longest_ns"].as_u64().unwrap());
    assert!((5e6..20e6).contains(&mean), "{steps:#}");
    assert!((50_000_000..100_000_000).contains(&longest), "{steps:#}");
    let summary = traced.summary_words();
    let from = format!("Steps 30, from planted.py:{} steps, ", line("steps", "first"));
    assert!(summary.contains(&from) && summary.contains("; the longest 5"), "{summary}");
    // The pause that only the longest step has, or a thread that the machine held up.
    let slowest = &steps["slowest"][0];
    let part = &slowest["parts"][0];
    assert_eq!((&slowest["ns"], &part["what"]), (&steps["longest_ns"], &json!("host_code")), "{steps:#}");
    assert!(part["longest_ns"].as_u64().unwrap() >= 50_000_000, "{steps:#}");
    assert_eq!(part["to"]["line"], line("steps", "first"), "{steps:#}");
    assert!(summary.contains(" more in host code, "), "{summary}");
    // Of a part it is not known what the program did between the selected calls.
    let mut command = gputrace();
    command.args(["report", "--json", "--filter", "kernel=*"]).arg(traced.trace());
    let part: Value = serde_json::from_str(&finish(&mut command).expect_code(0).stdout).unwrap();
    assert!(part["steps"][0].get("slowest").is_none(), "{:#}", part["steps"]);
    let mut command = gputrace();
    command.args(["report", "--fail-on", "step_time>4ms"]).arg(traced.trace());
    assert!(finish(&mut command).expect_code(4).stderr.contains("step_time"));
}
