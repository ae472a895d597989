//! Flamegraphs on every bottom, of a program with two devices, named streams and ranks.

use gputrace_wire::definition::{self, kind};

use crate::aggregate::{Aggregates, Leaf, Owner, StackKey};
use crate::batch::{Counters, Definition};
use crate::flame::{Bottom, Flame, RangePlace};
use crate::label::Labels;
use crate::model::{Process, Totals};
use crate::report::tests::golden;
use crate::report::tests::tape::Tape;

/// Streams of two devices of one kind: the default one, two without names, and three that the program
/// named, two of them alike.
fn many_places() -> (Totals, Aggregates) {
    let mut tape = Tape::new(false);
    let mut device = vec![0; 24];
    device[definition::device::ORDINAL] = 1;
    device[definition::device::UUID_LOW] = 77;
    device[definition::device::PCI_BUS] = 0x1b;
    tape.define(kind::DEVICE, 60, &device, b"NVIDIA H200");
    tape.define(kind::CONTEXT, 61, &[2, 60], b"");
    for (id, fields) in
        [(70, [1, 5]), (71, [0x700, 5]), (72, [0x701, 5]), (73, [0x702, 61]), (74, [0x703, 61])]
    {
        tape.define(kind::STREAM, id, &fields, b"");
    }
    for (id, of, name) in
        [(80, 72, "first"), (81, 72, "copies; in"), (82, 73, "work"), (83, 74, "work"), (84, 60, "spare")]
    {
        tape.define(kind::LABEL, id, &[of, 0], name.as_bytes());
    }
    let mut ms = 1_000_000;
    for (stream, number, device) in [(70, 7, 0), (71, 13, 0), (72, 14, 0), (73, 13, 1), (74, 15, 1)] {
        tape.on(stream, number, device);
        tape.launch(22, 64, Some(ms));
        ms *= 2;
    }
    tape.thread(3);
    tape.on(71, 13, 0);
    tape.launch(20, 64, Some(ms));
    tape.on(0, 7, 0);
    tape.fill(64, 500_000);
    tape.play(Counters::default())
}

fn folded(totals: &Totals, aggregates: &Aggregates, bottom: &str) -> String {
    let bottom = Bottom::parse(bottom).unwrap();
    Flame::with(totals, aggregates, &mut Labels::new(totals, aggregates), RangePlace::default(), &bottom)
        .folded()
}

#[test]
fn time_is_divided_by_whatever_is_asked_for() {
    let (totals, aggregates) = many_places();
    let bottoms = [
        "process,thread",
        "stream",
        "device,stream,thread",
        "thread,device",
        "rank,process",
        "stream,rank",
        "none",
    ];
    let mut text = String::new();
    let mut sums = Vec::new();
    for bottom in bottoms {
        let folded = folded(&totals, &aggregates, bottom);
        sums.push(
            folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum::<u64>(),
        );
        text += &format!("# {bottom}\n{folded}\n");
    }
    golden("flame/tests/bottoms.folded", &text);
    assert!(sums.iter().all(|sum| *sum == sums[0] && *sum == 63_500), "{sums:?}");
    assert_eq!(folded(&totals, &aggregates, "process,thread"), Flame::new(&totals, &aggregates).folded());
}

#[test]
fn without_device_times_calls_are_divided_too() {
    let (mut totals, mut aggregates) = many_places();
    aggregates.device_stacks = Default::default();
    let by_device = folded(&totals, &aggregates, "device");
    assert!(by_device.contains("GPU 1 NVIDIA H200 (spare);cuLaunchKernel"), "{by_device}");
    // Nothing is known of the process but its number.
    totals.processes.clear();
    for line in folded(&totals, &aggregates, "rank,device,stream").lines() {
        assert!(line.starts_with("(no rank);"), "{line}");
    }
}

/// As under a launcher that shows each rank one device of several.
#[test]
fn devices_that_processes_number_alike_are_told_apart() {
    let process = |number: u32, bus: u64| {
        let mut device = vec![0; 24];
        device[definition::device::UUID_LOW] = bus;
        device[definition::device::PCI_BUS] = bus;
        let mut process = Process { number, ..Process::default() };
        let record = Definition { kind: kind::DEVICE, id: 1, fields: device, text: b"NVIDIA H200".to_vec() };
        process.definitions.add(&record);
        process
    };
    let mut totals = Totals::default();
    totals.processes = vec![process(0, 0x1b), process(1, 0x43)];
    let mut aggregates = Aggregates::default();
    for process in [0, 1] {
        let (owner, leaf) = (Owner::Call, Leaf::Fill);
        let key =
            StackKey { process, thread: 2, stack: 0, ranges: 0, owner, api: 3, stream: 0, device: 0, leaf };
        aggregates.device_stacks.add(key, Some(5_000));
    }
    let apart = "GPU 0 NVIDIA H200 [0000:1b:00];(unknown call);memset 5\n\
                 GPU 0 NVIDIA H200 [0000:43:00];(unknown call);memset 5\n";
    assert_eq!(folded(&totals, &aggregates, "device"), apart);
    totals.processes[1] = Process { number: 1, ..process(0, 0x1b) };
    assert_eq!(folded(&totals, &aggregates, "device"), "GPU 0 NVIDIA H200;(unknown call);memset 10\n");
}

#[test]
fn records_without_calls_have_no_stream_and_a_device() {
    let (totals, mut aggregates) = many_places();
    let weights = aggregates.device_stacks.sorted();
    aggregates.device_stacks = Default::default();
    for (mut key, weight) in weights {
        (key.thread, key.api, key.stream) = (0, 0, 0);
        aggregates.device_stacks.add(key, Some(weight.ns));
    }
    let text = folded(&totals, &aggregates, "device");
    assert!(text.lines().all(|line| line.starts_with("GPU ") && line.contains(";(no host call);")), "{text}");
    let text = folded(&totals, &aggregates, "thread,stream");
    assert!(text.lines().all(|line| line.starts_with("(no host call);(no stream known);")), "{text}");
}
