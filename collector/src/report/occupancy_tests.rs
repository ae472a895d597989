//! Occupancy in reports: of kernels, in the summary, and in the finding on small blocks.

use crate::aggregate::OccupancyLimit;
use crate::batch::Counters;
use crate::report::tests::tape::Tape;
use crate::report::{Report, TextOptions};

/// Kernels of 1 ms, one after the other: each with its name and the threads of its blocks.
fn report(registers: u16, launches: &[(u32, u16)]) -> Report {
    let mut tape = Tape::new(false);
    tape.registers = registers;
    for (kernel, threads) in launches {
        tape.launch(*kernel, *threads, Some(1_000_000));
        tape.now_ns += 1_010_000;
    }
    let (totals, aggregates) = tape.play(Counters::default());
    Report::new(&totals, &aggregates)
}

fn verbose() -> TextOptions {
    TextOptions { verbose: true, ..TextOptions::default() }
}

#[test]
fn kernel_of_small_blocks_has_a_line_and_a_finding_that_name_a_better_block() {
    let report = report(32, &[(22, 16); 50]);
    let kernel = &report.kernels[0];
    assert_eq!(kernel.occupancy, Some(0.5));
    assert_eq!(kernel.limited.occupancy_limits, Some(vec![OccupancyLimit::Blocks]));
    assert_eq!(
        (kernel.limited.best_block_threads, kernel.limited.best_block_occupancy),
        (Some(1024), Some(1.0))
    );
    assert_eq!(kernel.limited, kernel.configs[0].limited);
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["kernels"][0]["occupancy_limits"], serde_json::json!(["blocks"]));
    assert_eq!(json["kernels"][0]["configs"][0]["best_block_threads"], 1024);

    let finding = &report.findings.as_ref().unwrap().list[0];
    assert_eq!(finding.rule, "small_blocks");
    assert!(finding.title.contains("(limited by the number of blocks)"), "{}", finding.title);
    let advice =
        "with 1,024 threads, as cuOccupancyMaxPotentialBlockSize answers, 100% of the warps fit if a block";
    assert!(finding.advice.contains(advice), "{}", finding.advice);
    // Half of the warps are added: a quarter of the time, of which the kernels are nearly all.
    assert!((0.24..0.26).contains(&finding.saves.share), "{:?}", finding.saves);
}

#[test]
fn only_kernels_with_few_warps_that_matter_have_a_line() {
    let line = |registers, launches: &[(u32, u16)]| {
        let text = report(registers, launches).to_text(&verbose());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        text.lines().find(|line| line.starts_with("Occupancy")).map(str::to_owned)
    };
    // 200 registers leave place for 8 warps of 64: one block of 5.
    let low = "Occupancy  triton_re…r_norm_3: 7.8% (limit: registers); 12.5% with blocks of 256";
    assert_eq!(line(200, &[(22, 160); 9]).as_deref(), Some(low));
    // Of other blocks no more warps fit.
    let all = "Occupancy  triton_red_fused_native_layer_norm_3: 12.5% (limit: registers)";
    assert_eq!(line(200, &[(22, 256); 9]).as_deref(), Some(all));
    assert_eq!(line(32, &[(22, 32); 9]), None, "50% is not below the limit");
    assert_eq!(line(32, &[(22, 128); 9]), None, "all warps fit");
    // One of 61 launches has less than a fiftieth of the time.
    let others = [&[(22, 160); 1][..], &[(23, 64); 60]].concat();
    assert!(line(200, &others).unwrap().starts_with("Occupancy  vectorized_"), "{:?}", line(200, &others));
    assert!(!report(200, &others).to_text(&verbose()).contains("layer_norm_3: "));
    assert!(!report(200, &[(22, 160); 9]).to_text(&TextOptions::default()).contains("Occupancy"));
}

#[test]
fn kernel_has_what_is_the_same_of_most_of_its_calls() {
    let limits = |launches: &[(u32, u16)]| report(32, launches).kernels[0].limited.occupancy_limits.clone();
    assert_eq!(limits(&[(22, 16), (22, 32), (22, 256)]), Some(vec![OccupancyLimit::Blocks]));
    assert_eq!(limits(&[(22, 16), (22, 256)]), None);
    assert_eq!(limits(&[(22, 256)]), Some(vec![]));
}

#[test]
fn small_blocks_that_registers_limit_are_no_finding() {
    let rules = |registers| -> Vec<&str> {
        let report = report(registers, &[(22, 32); 50]);
        report.findings.unwrap().list.iter().map(|finding| finding.rule).collect()
    };
    assert_eq!(rules(32), ["small_blocks"]);
    assert_eq!(rules(255), [""; 0]);
}
