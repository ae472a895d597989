//! Flamegraphs of sessions built by hand, compared with golden files; and properties of every flamegraph.

use gputrace_wire::definition;
use proptest::prelude::*;

use crate::aggregate::{Leaf, Owner, StackKey};
use crate::batch::Counters;
use crate::flame::{Flame, FlameLine, FlameWeight, Frame, FrameKind};
use crate::report::tests::golden;
use crate::report::tests::tape::{Tape, stacked, training};
use crate::report::{Report, TextOptions};

#[test]
fn folded_lines_add_up_to_the_device_time() {
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
fn flamegraph_without_device_times_shows_host_time_and_says_so() {
    let mut tape = Tape::new(false);
    tape.notice(1, definition::rung::HOOKS, "no device times");
    tape.launch(20, 256, None);
    tape.launch(20, 256, None);
    tape.wait(1_000_000);
    let (totals, aggregates) = tape.play(Counters::default());
    let flame = Flame::new(&totals, &aggregates);
    assert!(flame.weight == FlameWeight::Host && flame.title().contains("no device times"));
    assert_eq!(
        flame.folded(),
        "python train.py;main;cuLaunchKernel;vectorized_elementwise_kernel<4, CUDAFunctor_add<float>> 6\n\
         python train.py;main;cuStreamSynchronize 1000\n"
    );
    let svg = flame.svg();
    assert!(svg.contains("1.01 ms of host time in CUDA calls (no device times)"));
}

#[test]
fn svg_is_one_document_with_its_title() {
    let (totals, aggregates) = training(true);
    let flame = Flame::new(&totals, &aggregates);
    let svg = flame.svg();
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"));
    for part in [
        "of GPU time (simulated)</text>",
        " · simulated device · python train.py<",
        "triton_red_fused_native_layer_norm_3",
        ">all</text>",
    ] {
        assert!(svg.contains(part), "{part}");
    }
    assert_eq!(svg, flame.svg(), "drawn twice, it differs");
}

#[test]
fn svg_without_any_weight_says_that_nothing_was_recorded() {
    let (totals, aggregates) = Tape::new(false).play(Counters::default());
    let flame = Flame::new(&totals, &aggregates);
    assert_eq!(flame.folded(), "");
    assert!(flame.svg().contains("No CUDA work was recorded</text>"));
}

#[test]
fn threads_and_processes_of_one_name_are_numbered() {
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
    let (owner, leaf) = (Owner::Call, Leaf::Kernel(20));
    let key =
        StackKey { process: 1, thread: 2, stack: 0, ranges: 0, owner, api: 10, stream: 0, device: 0, leaf };
    aggregates.device_stacks.add(key, Some(5_000));
    let labels = threads(&Flame::new(&totals, &aggregates));
    assert!(
        labels[0].starts_with("python train.py [4242];") && labels[3].starts_with("python train.py [4343];"),
        "{labels:?}"
    );
}

#[test]
fn replay_of_unknown_origin_is_marked_unless_replays_are_asked_for() {
    let (totals, mut aggregates) = training(false);
    aggregates.device_stacks = Default::default();
    let key = StackKey {
        process: 0,
        thread: 2,
        stack: 0,
        ranges: 0,
        owner: Owner::Replay,
        api: 10,
        stream: 0,
        device: 0,
        leaf: Leaf::Kernel(20),
    };
    aggregates.device_stacks.add(key, Some(5_000));
    let owner = Owner::Capture { replay_stack: 0, replay_ranges: 0 };
    aggregates.device_stacks.add(StackKey { owner, stack: 77, ..key }, Some(4_000));
    let marked = |flame: Flame| {
        let lines = flame.lines.iter().map(|line| line.frames.iter().any(|f| &*f.text == "[graph replay]"));
        lines.collect::<Vec<_>>()
    };
    let mut by_capture = marked(Flame::new(&totals, &aggregates));
    by_capture.sort_unstable();
    assert_eq!(by_capture, [false, true]);
    aggregates.device_stacks.by_replay();
    let by_replay = Flame::new(&totals, &aggregates);
    assert_eq!((by_replay.total_ns(), marked(by_replay)), (9_000, vec![false]));
}

pub(super) fn graph(lines: Vec<(Vec<String>, u64)>) -> Flame {
    let line = |(frames, ns): (Vec<String>, u64)| FlameLine {
        frames: frames.iter().map(|text| Frame::new(FrameKind::Kernel, text)).collect(),
        ns,
        calls: 1,
    };
    Flame {
        program: "p".into(),
        simulated: false,
        weight: FlameWeight::Device,
        coverage: 1.0,
        estimate: None,
        recorded: None,
        is_part: false,
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
    fn folded_lines_of_any_names_are_split_alike_by_readers(
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
    }
}

#[test]
fn program_frames_lie_between_thread_and_call() {
    let (totals, aggregates) = stacked(false);
    let flame = Flame::new(&totals, &aggregates);
    golden("flame/tests/stacked.folded", &flame.folded());
    assert_eq!(flame.total_ns(), aggregates.device_stacks.total_ns());
    let kinds: Vec<FrameKind> = flame.lines[0].frames.iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds[..2], [FrameKind::Process, FrameKind::Thread]);
    assert!(kinds.contains(&FrameKind::Code));
}

#[test]
fn hostile_names_of_code_keep_folded_lines_apart() {
    let mut tape = Tape::new(false);
    let names: [(&[u8], &[u8]); 7] = [
        (b"a;b", b"/tmp/x;y.py"),
        (b"new\nline 7", b"odd \x1b[31m.py"),
        (b"\xff\xfe", b"caf\xe9.py"),
        (b"\xff\xfd", b"caf\xe9.py"),
        (b"", b""),
        ("größe".as_bytes(), "данные.py".as_bytes()),
        (&[b'n'; 9_000], &[b'/'; 3_000]),
    ];
    for (at, (name, file)) in (0..).zip(names) {
        tape.code(100 + at, name, file, u64::MAX >> (at * 10));
        tape.stack(200 + at, &[(100 + at, u64::from(at) * 1_000_000)]);
        tape.at(200 + at);
        tape.launch(22, 32, Some(1_000_000));
    }
    let (totals, aggregates) = tape.play(Counters::default());
    let flame = Flame::new(&totals, &aggregates);
    let folded = flame.folded();
    assert_eq!(folded.lines().count(), names.len(), "{folded}");
    for line in folded.lines() {
        assert_eq!(line.split(';').count(), 5, "{line}");
        assert!(!line.chars().any(char::is_control), "{line}");
        assert!(line.ends_with(" 1000"), "{line}");
    }
    for part in
        [r"a:b x:y.py:", r"new\nline 7 odd \u{1b}[31m.py:", r"\xff\xfe caf\xe9.py:", "größe данные.py:"]
    {
        assert!(folded.contains(part), "{part} not in {folded}");
    }
    let text = Report::new(&totals, &aggregates).to_text(&TextOptions::default());
    assert!(!text.contains('\x1b') && text.lines().all(|line| line.chars().count() <= 100), "{text}");
}
