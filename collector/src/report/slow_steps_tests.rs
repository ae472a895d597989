use crate::batch::Counters;
use crate::report::tests::tape::{Tape, python_stacks};
use crate::report::{Report, TextOptions};

/// 60 steps; one has a pause of 30 ms in host code and one a kernel of 8 ms that the wait is for.
fn report() -> Report {
    let mut tape = Tape::new(false);
    python_stacks(&mut tape);
    for step in 0..60u64 {
        tape.at(112);
        tape.copy(11, 1, 1 << 20, 4_500);
        if step == 40 {
            tape.now_ns += 30_000_000;
        }
        for stack in [110, 113, 111] {
            tape.at(stack);
            tape.launch(41, 512, Some(1_200));
        }
        tape.at(114);
        let is_long = step == 50;
        tape.launch(40, 512, Some(if is_long { 8_000_000 } else { 2_000 }));
        tape.wait(if is_long { 8_000_000 } else { 20_000 });
    }
    let (totals, aggregates) = tape.play(Counters::default());
    Report::new(&totals, &aggregates)
}

#[test]
fn slowest_step_has_what_took_longer_than_usual_and_where() {
    let report = report();
    let [steps] = &report.steps[..] else { panic!("{:?}", report.steps) };
    assert_eq!(steps.steps, 60);
    let [pause, long] = &steps.slowest[..] else { panic!("{:#?}", steps.slowest) };
    for slow in [pause, long] {
        assert_eq!(slow.parts.iter().map(|part| part.ns).sum::<u64>(), slow.ns);
        let usual: u64 = slow.parts.iter().map(|part| part.usual_ns).sum();
        assert!(usual.abs_diff(slow.usual_ns) < 10, "{slow:#?}");
    }
    let host = &pause.parts[0];
    assert_eq!((host.what, host.ns - host.usual_ns), ("host_code", 30_000_000));
    assert!(host.longest_ns >= 30_000_000);
    let line = |at: &Option<crate::report::CodeLocation>| at.as_ref().and_then(|at| at.line);
    assert_eq!((line(&host.from), line(&host.to)), (Some(8), Some(22)));
    assert_eq!((long.parts[0].what, line(&long.parts[0].to)), ("wait", Some(62)));
    assert_eq!(long.device_ns - long.usual_device_ns, 7_998_000);
    let kernel = long.long_kernel.as_ref().unwrap();
    assert_eq!((kernel.name.as_str(), kernel.ns), ("gemm_bf16", 8_000_000));
    let text = report.to_text(&TextOptions::default());
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "slowest 30.0 ms more in host code, at once from data.py:8 to train.py:22 train_step GPU";
    assert!(words.contains(expected), "{text}");
}
