//! Flamegraphs of sessions built by hand, beside their golden file; and what holds for all.

use gputrace_wire::definition;
use proptest::prelude::*;

use crate::aggregate::{Leaf, StackKey};
use crate::batch::Counters;
use crate::flame::{Flame, FlameLine, Frame, FrameKind};
use crate::report::tests::{Tape, golden, training};

#[test]
fn folded_lines_say_where_device_time_came_from() {
    let (totals, aggregates) = training(false);
    let flame = Flame::new(&totals, &aggregates);
    golden("flame/tests/training.folded", &flame.folded());
    let device_ns: u64 = aggregates.kernels.iter().map(|(_, kernel)| kernel.durations.total_ns()).sum();
    let moved = aggregates.transfers.copies.values().map(|moved| moved.durations.total_ns()).sum::<u64>();
    let total_ns = device_ns + moved + aggregates.transfers.fills.durations.total_ns();
    assert_eq!(flame.total_ns(), total_ns);
    let folded: u64 =
        flame.folded().lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    assert!(folded.abs_diff(total_ns / 1_000) <= 1);
}

#[test]
fn without_device_times_the_graph_is_of_host_time_and_says_so() {
    let mut tape = Tape::new(false);
    tape.notice(1, definition::rung::HOOKS, "no device times");
    tape.launch(20, 256, None);
    tape.launch(20, 256, None);
    tape.wait(1_000_000);
    let (totals, aggregates) = tape.play(Counters::default());
    let flame = Flame::new(&totals, &aggregates);
    assert!(flame.host_time && flame.title().contains("no device times"));
    assert_eq!(
        flame.folded(),
        "python train.py;main;cuLaunchKernel;vectorized_elementwise_kernel<4, CUDAFunctor_add<float>> 6\n\
         python train.py;main;cuStreamSynchronize 1000\n"
    );
    let svg = String::from_utf8(flame.svg().unwrap()).unwrap();
    assert!(svg.contains("Host time of CUDA calls (no device times)"));
}

#[test]
fn the_svg_is_one_document_with_its_title() {
    let (totals, aggregates) = training(true);
    let flame = Flame::new(&totals, &aggregates);
    let svg = String::from_utf8(flame.svg().unwrap()).unwrap();
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"));
    for part in [
        "GPU time (simulated)",
        "python train.py: ",
        "simulated device",
        "triton_red_fused_native_layer_norm_3",
        ">all</text>",
    ] {
        assert!(svg.contains(part), "{part}");
    }
    assert_eq!(svg, String::from_utf8(flame.svg().unwrap()).unwrap(), "drawn twice, it differs");
}

#[test]
fn nothing_recorded_is_drawn_as_such() {
    let (totals, aggregates) = Tape::new(false).play(Counters::default());
    let flame = Flame::new(&totals, &aggregates);
    assert_eq!(flame.folded(), "");
    assert!(String::from_utf8(flame.svg().unwrap()).unwrap().contains("no CUDA work was recorded"));
}

#[test]
fn threads_and_processes_of_one_name_are_told_apart() {
    let mut tape = Tape::new(false);
    for tid in [50, 51, 52] {
        tape.define_thread(60 + tid, tid.into(), if tid == 52 { "python" } else { "pool" });
        tape.thread(60 + tid);
        tape.launch(22, 64, Some(1_000_000));
    }
    let (mut totals, mut aggregates) = tape.play(Counters::default());
    let threads = |flame: &Flame| -> Vec<String> {
        flame.lines.iter().map(|line| format!("{};{}", line.frames[0].text, line.frames[1].text)).collect()
    };
    let expected = ["python train.py;pool [1]", "python train.py;pool [2]", "python train.py;thread 2"];
    assert_eq!(threads(&Flame::new(&totals, &aggregates)), expected);

    // Another process of the same command, as under a launcher of ranks.
    let (other, _) = training(false);
    let mut twin = other.processes.into_iter().next().unwrap();
    twin.number = 1;
    twin.begin.pid = 4343;
    totals.processes.push(twin);
    let key = StackKey { process: 1, thread: 2, stack: 0, api: 10, leaf: Leaf::Kernel(20) };
    aggregates.device_stacks.add(key, 5_000);
    let labels = threads(&Flame::new(&totals, &aggregates));
    assert!(
        labels[0].starts_with("python train.py [4242];") && labels[3].starts_with("python train.py [4343];"),
        "{labels:?}"
    );
}

fn graph(lines: Vec<(Vec<String>, u64)>) -> Flame {
    let line = |(frames, ns): (Vec<String>, u64)| FlameLine {
        frames: frames.iter().map(|text| Frame::new(FrameKind::Kernel, text)).collect(),
        ns,
    };
    Flame {
        program: "p".into(),
        simulated: false,
        host_time: false,
        coverage: 1.0,
        lines: lines.into_iter().map(line).collect(),
    }
}

proptest! {
    #[test]
    fn weights_round_within_a_microsecond(weights in prop::collection::vec(0u64..5_000_000, 1..50)) {
        let flame = graph(weights.iter().enumerate().map(|(at, ns)| (vec![format!("k{at}")], *ns)).collect());
        let mut sum = 0;
        for (line, us) in flame.weighted() {
            prop_assert!((us * 1_000).abs_diff(line.ns) < 1_000);
            sum += us;
        }
        prop_assert_eq!(sum, (flame.total_ns() + 500) / 1_000);
    }

    #[test]
    fn any_names_make_lines_that_readers_split_alike(
        lines in prop::collection::vec((prop::collection::vec("[ab;\n 1\u{1b}é]{0,4}", 1..5), 1_000u64..9_000), 1..8),
    ) {
        let flame = graph(lines);
        let folded = flame.folded();
        prop_assert_eq!(folded.lines().count(), flame.lines.len());
        for (text, line) in folded.lines().zip(&flame.lines) {
            let (stack, weight) = text.rsplit_once(' ').unwrap();
            prop_assert!(weight.parse::<u64>().is_ok());
            prop_assert_eq!(stack.split(';').count(), line.frames.len());
            let second = stack.rsplit_once(' ').map_or("", |(_, word)| word);
            prop_assert!(second.parse::<f64>().is_err(), "{text}");
        }
        prop_assert!(flame.svg().is_ok());
    }
}
