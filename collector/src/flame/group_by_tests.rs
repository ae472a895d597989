//! Flamegraphs grouped by every key, of a program with two devices, named streams and ranks.

use gputrace_wire::definition::{self, kind};

use crate::aggregate::{Aggregates, Leaf, Owner, StackKey};
use crate::batch::{Counters, Definition};
use crate::flame::{Flame, GroupBy, RangePosition};
use crate::label::Labels;
use crate::model::{Process, Totals};
use crate::report::tests::golden;
use crate::report::tests::tape::Tape;

/// Launches to streams of two devices of one model: the default stream, two without names, and three that the
/// program named, two of them alike.
fn streams_of_two_devices() -> (Totals, Aggregates) {
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

fn folded(totals: &Totals, aggregates: &Aggregates, group_by: &str) -> String {
    let group_by = GroupBy::parse(group_by).unwrap();
    Flame::with(totals, aggregates, &mut Labels::new(totals, aggregates), RangePosition::default(), &group_by)
        .folded()
}

#[test]
fn group_by_divides_time_by_the_keys_asked_for() {
    let (totals, aggregates) = streams_of_two_devices();
    let all = [
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
    for group_by in all {
        let folded = folded(&totals, &aggregates, group_by);
        sums.push(
            folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum::<u64>(),
        );
        text += &format!("# {group_by}\n{folded}\n");
    }
    golden("flame/tests/group_by.folded", &text);
    assert!(sums.iter().all(|sum| *sum == sums[0] && *sum == 63_500), "{sums:?}");
    assert_eq!(folded(&totals, &aggregates, "process,thread"), Flame::new(&totals, &aggregates).folded());
}

#[test]
fn group_by_divides_host_calls_where_there_are_no_device_times() {
    let (mut totals, mut aggregates) = streams_of_two_devices();
    aggregates.device_stacks = Default::default();
    let by_device = folded(&totals, &aggregates, "device");
    assert!(by_device.contains("GPU 1 NVIDIA H200 (spare);cuLaunchKernel"), "{by_device}");
    // Only the number of the process is known.
    totals.processes.clear();
    for line in folded(&totals, &aggregates, "rank,device,stream").lines() {
        assert!(line.starts_with("(no rank);"), "{line}");
    }
}

/// As under a launcher that makes one device of several visible to each rank.
#[test]
fn devices_that_processes_number_alike_have_different_names() {
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
    let expected = "GPU 0 NVIDIA H200 [0000:1b:00];(unknown call);memset 5\n\
                 GPU 0 NVIDIA H200 [0000:43:00];(unknown call);memset 5\n";
    assert_eq!(folded(&totals, &aggregates, "device"), expected);
    totals.processes[1] = Process { number: 1, ..process(0, 0x1b) };
    assert_eq!(folded(&totals, &aggregates, "device"), "GPU 0 NVIDIA H200;(unknown call);memset 10\n");
}

#[test]
fn records_without_calls_have_no_stream_and_a_device() {
    let (totals, mut aggregates) = streams_of_two_devices();
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
