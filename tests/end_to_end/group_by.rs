//! `--group-by`: what a flamegraph is divided by before anything else.

use std::collections::BTreeSet;
use std::path::Path;

use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{Traced, bare_command, gputrace, run_command, run_with};

fn bottoms(folded: &str, frames: usize) -> BTreeSet<String> {
    let stack = |line: &str| line.rsplit_once(' ').unwrap().0.to_owned();
    let bottom = |line: &str| stack(line).split(';').take(frames).collect::<Vec<_>>().join(";");
    folded.lines().map(bottom).collect()
}

fn of(traced: &Traced, group_by: &str) -> String {
    let mut command = gputrace();
    command.args(["flamegraph", "--folded", "--group-by", group_by]).arg(traced.trace());
    finish(&mut command).expect_code(0).stdout
}

fn total_us(folded: &str) -> u64 {
    folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn run_and_its_trace_are_divided_by_what_is_asked_for() {
    let program = compiled("basic", Link::Driver);
    let traced = run_with(&["--group-by", "device,stream,rank"], &program).env("RANK", "3").succeed();
    let folded = traced.read("flame.folded");
    for bottom in bottoms(&folded, 3) {
        let frames: Vec<_> = bottom.split(';').collect();
        assert!(frames[0].starts_with("GPU 0 ") && frames[1].contains("stream"), "{bottom}");
        assert_eq!(frames[2], "rank 3");
    }
    assert_eq!(of(&traced, "device,stream,rank"), folded);
    assert_eq!(bottoms(&of(&traced, "process"), 1), BTreeSet::from(["basic".to_owned()]));
    assert_eq!(bottoms(&of(&traced, "thread,process"), 2), BTreeSet::from(["main;basic".to_owned()]));
    let none = of(&traced, "none");
    assert!(bottoms(&none, 1).iter().all(|bottom| bottom.starts_with("cu")), "{none}");
    // Lines are rounded to microseconds by themselves.
    assert!(total_us(&none).abs_diff(total_us(&folded)) <= 1);
    let default =
        finish(gputrace().args(["flamegraph", "--folded"]).arg(traced.trace())).expect_code(0).stdout;
    assert_eq!(default, of(&traced, "process,thread"));
}

#[test]
fn variable_divides_with_auto_collect_and_the_option_wins() {
    let program = compiled("basic", Link::Driver);
    let bare =
        bare_command(&program).env("GPUTRACE_GROUP_BY", "rank,thread").env("SLURM_PROCID", "7").succeed();
    let both = BTreeSet::from(["rank 7;main".to_owned()]);
    assert_eq!(bottoms(&bare.read("flame.folded"), 2), both);
    let run = run_with(&["--group-by", "thread"], &program).env("GPUTRACE_GROUP_BY", "stream").succeed();
    assert_eq!(bottoms(&run.read("flame.folded"), 1), BTreeSet::from(["main".to_owned()]));
}

#[test]
fn invalid_division_is_refused_with_the_valid_ones() {
    for value in ["proces", "process,,thread", "stream,stream", "none,rank", ""] {
        for command in [&["run", "--group-by"][..], &["flamegraph", "--group-by"]] {
            let ended = finish(gputrace().args(command).arg(value).arg("true")).expect_code(2);
            assert!(ended.stderr.contains("--group-by"), "{value}: {}", ended.stderr);
        }
    }
    let ended = finish(gputrace().args(["run", "--group-by", "proces", "true"])).expect_code(2);
    assert!(ended.stderr.contains("process, thread, stream, device, rank"), "{}", ended.stderr);
    // A variable is warned about, and nothing is lost by it.
    let program = compiled("basic", Link::Driver);
    let traced = run_command(&program).env("GPUTRACE_GROUP_BY", "streams").succeed();
    let warning = "GPUTRACE_GROUP_BY=streams: 'streams' is none of process, thread, stream, device, rank";
    assert!(traced.ended.stderr.contains(warning), "{}", traced.ended.stderr);
    assert!(bottoms(&traced.read("flame.folded"), 2).contains("basic;main"));
    assert!(Path::new(&traced.trace()).exists());
}

#[test]
fn flamegraph_of_a_part_is_the_folded_export_of_that_part() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/demo-h200.gputrace");
    let of = |command: &[&str], options: &[&str]| {
        finish(gputrace().args(command).args(options).arg(&demo)).expect_code(0).stdout
    };
    let flame = |options: &[&str]| of(&["flamegraph", "--folded"], options);
    for options in [&["--to", "190ms"][..], &["--from", "190ms"], &["--filter", "kernel=*gemm*"], &[]] {
        let folded = flame(options);
        assert!(total_us(&folded) > 1000, "{options:?}: {folded}");
        assert_eq!(folded, of(&["export", "--format", "folded"], options), "{options:?}");
    }
    let (early, late) = (total_us(&flame(&["--to", "190ms"])), total_us(&flame(&["--from", "190ms"])));
    // The kernel that runs at that moment is in both.
    assert!((early + late).abs_diff(total_us(&flame(&[]))) < 200, "{early} and {late}");
    let none = finish(gputrace().args(["flamegraph", "--folded", "--from", "1h"]).arg(&demo)).expect_code(0);
    assert_eq!(none.stdout, "");
    assert!(none.stderr.contains("nothing in the trace fits --filter, --from and --to"), "{}", none.stderr);
    let drawing = |options: &[&str]| of(&["flamegraph"], options);
    assert!(drawing(&["--from", "1h"]).contains("No CUDA work in this part of the trace"));
    assert!(drawing(&["--to", "190ms"]).contains(" · a part of the trace"));
    assert!(!drawing(&[]).contains("a part of the trace"));
    finish(gputrace().args(["flamegraph", "--from", "2", "--to", "1"]).arg(&demo)).expect_code(2);
}
