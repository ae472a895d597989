//! Comparisons of sessions built by hand, as pages and as JSON.

use gputrace_wire::definition;

use super::*;
use crate::batch::Counters;
use crate::report::tests::golden;
use crate::report::tests::tape::{Tape, python_stacks};

/// A training program. Its step moved by `moved` lines; `slower_ns` more for each gemm, `extra` launches of
/// another kernel.
fn run(moved: u64, slower_ns: u64, extra: usize) -> Report {
    run_of(50, moved, slower_ns, extra)
}

fn run_of(steps: u64, moved: u64, slower_ns: u64, extra: usize) -> Report {
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    tape.define(definition::kind::NAME, 43, &[], b"fused_add");
    tape.define(definition::kind::FUNCTION, 53, &[0, 43, 0, 32], b"");
    tape.code(120, b"forward", b"/home/me/net.py", 30 + moved);
    tape.code(121, b"evaluate", b"/home/me/net.py", 90);
    tape.stack(130, &[(100, 39), (120, 2)]);
    tape.stack(131, &[(100, 39), (120, 4)]);
    tape.stack(132, &[(100, 40), (121, 1)]);
    for step in 0..steps {
        tape.at(130);
        tape.launch(40, 128, Some(40_000 + slower_ns + step * 10));
        tape.at(131);
        if extra == 0 {
            tape.launch(41, 512, Some(9_000));
        }
        tape.launch(42, 256, Some(5_000));
        tape.wait(60_000);
    }
    tape.at(132);
    for _ in 0..extra {
        tape.launch(43, 64, Some(70_000));
        tape.wait(80_000);
    }
    let (totals, aggregates) = tape.play(Counters::default());
    Report::new(&totals, &aggregates)
}

fn named<'a>(rows: &'a [ComparedRow], name: &str) -> &'a ComparedRow {
    let found = rows.iter().find(|row| row.name == name);
    found.unwrap_or_else(|| panic!("no {name}: {:?}", rows.iter().map(|row| &row.name).collect::<Vec<_>>()))
}

#[test]
fn rows_are_joined_and_the_largest_change_is_first() {
    let diff = DiffReport::new(&[run(0, 0, 0)], &[run(7, 4_000, 20)]);
    let names: Vec<&str> = diff.kernels.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["fused_add", "add_f32", "gemm_bf16", "adam_step"]);
    let only: Vec<_> = diff.kernels.iter().map(|row| row.only).collect();
    assert_eq!(only, [Some(OnlyIn::After), Some(OnlyIn::Before), None, None]);
    let gemm = named(&diff.kernels, "gemm_bf16");
    assert_eq!((gemm.time.difference, gemm.calls.difference), (Some(50.0 * 4_000.0), Some(0.0)));
    assert!(named(&diff.kernels, "adam_step").is_same() && !gemm.is_same());
    // Each operation is in one row, so the rows add up to the whole.
    let kernel_time = diff.totals.iter().find(|total| total.name == "kernel_time").unwrap();
    for rows in [&diff.kernels, &diff.lines] {
        let sum: f64 = rows.iter().filter_map(|row| row.time.difference).sum();
        assert_eq!(Some(sum), kernel_time.measured.difference);
    }
}

/// Lines that moved together are joined; `evaluate` is new, and `forward:32` is not another line.
#[test]
fn line_that_moved_in_its_file_is_one_row() {
    let diff = DiffReport::new(&[run(0, 0, 0)], &[run(7, 4_000, 20)]);
    let moved = named(&diff.lines, "net.py:32→39 forward");
    assert_eq!((moved.only, moved.time.difference), (None, Some(200_000.0)));
    assert_eq!(named(&diff.lines, "net.py:91 evaluate").only, Some(OnlyIn::After));
    let unmoved = DiffReport::new(&[run(0, 0, 0)], &[run(0, 4_000, 0)]);
    assert_eq!(named(&unmoved.lines, "net.py:32 forward").only, None);
}

#[test]
fn single_runs_are_shown_without_a_claim() {
    let diff = DiffReport::new(&[run(0, 0, 0)], &[run(7, 4_000, 20)]);
    golden("report/diff/tests/single.txt", &diff.to_page(PageFormat::Text { width: 100 }));
    golden("report/diff/tests/single.md", &diff.to_page(PageFormat::Markdown));
    assert!(diff.notes[0].starts_with("one run each: differences below the run-to-run spread"));
    let measured = diff.kernels.iter().map(|row| row.time);
    assert!(measured.chain(diff.totals.iter().map(|total| total.measured)).all(|of| of.interval.is_none()));
}

#[test]
fn several_runs_separate_a_change_from_noise() {
    let side = |all: [u64; 3]| all.map(|slower_ns| run(0, slower_ns, 0));
    let diff = DiffReport::new(&side([0, 900, 300]), &side([4_000, 4_300, 4_700]));
    let gemm = named(&diff.kernels, "gemm_bf16");
    let [least, most] = gemm.time.interval.unwrap();
    let difference = gemm.time.difference.unwrap();
    assert!(least < difference && difference < most && least > 0.0, "{gemm:?}");
    assert_eq!(gemm.time.beyond_noise, Some(true));
    let noise = DiffReport::new(&side([0, 900, 300]), &side([200, 1_000, 400]));
    assert_eq!(named(&noise.kernels, "gemm_bf16").time.beyond_noise, Some(false));
    golden("report/diff/tests/several.txt", &diff.to_page(PageFormat::Text { width: 120 }));
}

/// A longer run has more of everything; by step it is compared with the shorter one.
#[test]
fn runs_of_different_lengths_are_compared_by_step() {
    let diff = DiffReport::new(&[run(0, 0, 0)], &[run_of(80, 0, 1_000, 0)]);
    let steps = diff.totals.iter().find(|total| total.name == "steps").unwrap();
    assert_eq!((steps.measured.before, steps.measured.after), (Some(50.0), Some(80.0)));
    // Of one run each, the mean step has an interval by the spread of its steps.
    let step_time = diff.totals.iter().find(|total| total.name == "step_time").unwrap().measured;
    let [least, most] = step_time.interval.unwrap();
    let difference = step_time.difference.unwrap();
    assert!(least <= difference && difference <= most, "{step_time:?}");
    let is_known = |total: &&ComparedTotal| total.measured.interval.is_some();
    assert_eq!(diff.totals.iter().filter(is_known).count(), 1);
    assert!(diff.notes.iter().any(|note| note.contains("step")), "{:?}", diff.notes);
    assert_eq!(diff.kernels[0].name, "gemm_bf16");
    // Step n takes 10 n ns more than the first.
    let gemm = diff.kernels[0].per_step.unwrap();
    assert_eq!((gemm.time.before, gemm.time.after), (Some(40_245.0), Some(41_395.0)));
    assert_eq!((gemm.time.difference, gemm.calls.difference), (Some(1_150.0), Some(0.0)));
    let adam = named(&diff.kernels, "adam_step");
    assert!(adam.is_same() && adam.calls.difference == Some(30.0), "{adam:?}");
    let forward = named(&diff.lines, "net.py:32 forward").per_step.unwrap();
    assert_eq!((forward.time.difference, forward.host_time.unwrap().difference), (Some(1_150.0), Some(0.0)));
    let page = diff.to_page(PageFormat::Text { width: 100 });
    assert!(page.contains("Kernels, per step") && page.contains("2 kernels the same"), "{page}");
    assert!(
        page.contains("+1.15 µs") && page.contains("figures per step are those of the whole run"),
        "{page}"
    );
    assert!(diff.to_page(PageFormat::Markdown).contains("| Where, per step |"));
    // Where one run has no steps, the whole runs are compared.
    let diff = DiffReport::new(&[run(0, 0, 0), run(0, 0, 0)], &[run(0, 0, 0), run(0, 0, 20)]);
    assert!(diff.kernels.iter().chain(&diff.lines).all(|row| row.per_step.is_none()));
    let page = diff.to_page(PageFormat::Text { width: 100 });
    assert!(!page.contains("per step"), "{page}");
}

/// Stacks of one run: the kernel's name and its time.
fn stacks_of(all: impl IntoIterator<Item = (String, u64)>) -> Vec<Vec<StackOfRun>> {
    let of_run = all.into_iter().map(|(kernel, ns)| {
        let frames = ["python", "step net.py:32", kernel.as_str()].map(std::sync::Arc::from);
        (frames.to_vec(), RunSums { ns: Some(ns), calls: 50, host_ns: 0 })
    });
    vec![of_run.collect()]
}

#[test]
fn stacks_that_changed_the_most_are_kept() {
    let (old, new) = (run(0, 0, 0), run(0, 0, 0));
    let [old, new] = [[old], [new]];
    let mut diff = DiffReport::new(&old, &new);
    let stacks =
        |extra_ns: u64| stacks_of((0..300).map(|at| (format!("kernel_{at}"), 5_000 + at * extra_ns)));
    let (before, after) = (stacks(0), stacks(50));
    let side = |runs, stacks| SideStacks { runs, stacks };
    diff.add_stacks(side(&old, &before), side(&new, &after));
    assert_eq!((diff.stacks.len(), diff.stacks_left_out, diff.stacks_the_same), (200, 99, 1));
    let first = &diff.stacks[0];
    assert_eq!((first.name.as_str(), first.only), ("python;step net.py:32;kernel_299", None));
    assert_eq!((first.time.difference, first.host_time), (Some(299.0 * 50.0), None));
    assert_eq!(first.per_step.unwrap().time.difference, Some(299.0));
    let page = diff.to_page(PageFormat::Text { width: 120 });
    assert!(page.contains("Stacks, per step"), "{page}");
    assert!(page.contains("kernel_299 < step net.py:32 < python"), "{page}");
    assert!(page.contains("294 stacks that changed less") && page.contains("1 stack the same"), "{page}");
    assert!(diff.to_page(PageFormat::Markdown).contains("| Stacks, per step |"));
    // A stack that one side alone has, and no stacks at all.
    let mut diff = DiffReport::new(&old, &new);
    let lost = stacks_of([("lost".to_owned(), 7)]);
    diff.add_stacks(side(&old, &lost), side(&new, &[]));
    assert_eq!((diff.stacks[0].only, diff.stacks[0].time.difference), (Some(OnlyIn::Before), Some(-7.0)));
    let mut diff = DiffReport::new(&old, &new);
    diff.add_stacks(side(&old, &[]), side(&new, &[]));
    assert!(!diff.to_page(PageFormat::Text { width: 80 }).contains("Stacks"));
}

#[test]
fn pages_keep_to_the_width() {
    let mut diff = DiffReport::new(&[run(0, 0, 0), run(0, 9, 0)], &[run(7, 4_000, 20), run(7, 5_000, 19)]);
    diff.failed.push("wall_time>5%: ".repeat(20));
    for row in diff.kernels.iter_mut().chain(&mut diff.lines) {
        row.name = format!("{}_{}", row.name, "long_".repeat(30));
    }
    for width in 60..=160 {
        let page = diff.to_page(PageFormat::Text { width });
        let longest = page.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(longest.chars().count() <= width, "{width}: {longest}");
    }
}

#[test]
fn what_cannot_be_compared_is_in_the_notes() {
    let mut tape = Tape::new(true);
    tape.notice(1, definition::rung::HOOKS, "no device times");
    for _ in 0..3 {
        tape.launch(20, 256, None);
    }
    let (totals, aggregates) = tape.play(Counters::default());
    let hooks = Report::new(&totals, &aggregates);
    let (totals, aggregates) = Tape::new(true).play(Counters::default());
    let empty = Report::new(&totals, &aggregates);
    let diff = DiffReport::new(&[run(0, 0, 0)], std::slice::from_ref(&hooks));
    let notes = diff.notes.join("\n");
    assert!(notes.contains("some runs are on the simulated device"), "{notes}");
    assert!(notes.contains("after: no device times"), "{notes}");
    let kernel = diff.kernels.iter().find(|row| row.only == Some(OnlyIn::Before)).unwrap();
    assert_eq!((kernel.time.difference, kernel.time.after), (None, None));
    assert!(kernel.time.before.is_some() && kernel.calls.difference.is_some(), "{kernel:?}");
    // The rest is compared.
    let launches = diff.totals.iter().find(|total| total.name == "launches").unwrap();
    assert_eq!(launches.measured.after, Some(3.0));
    let page = DiffReport::new(&[empty], &[hooks]).to_page(PageFormat::Text { width: 80 });
    assert!(page.contains("before: no CUDA work was recorded"), "{page}");
    assert!(page.contains("3") && !page.contains("NaN"), "{page}");
}

#[test]
fn hostile_names_stay_on_their_lines() {
    let mut before = run(0, 0, 0);
    before.kernels[0].full_name = "evil\n| x | <script>\u{1b}[2J".to_owned();
    before.command = vec!["a\n# b".to_owned()];
    let diff = DiffReport::new(&[before], &[run(0, 0, 0)]);
    let markdown = diff.to_page(PageFormat::Markdown);
    let page = diff.to_page(PageFormat::Text { width: 120 });
    for text in [&markdown, &page] {
        assert!(!text.contains('\u{1b}') && text.contains("evil"), "{text}");
    }
    assert!(!markdown.contains("<script>") && !markdown.contains("\n# b"), "{markdown}");
}
