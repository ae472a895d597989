//! What processes that ended come to when they are told together.

use gputrace_wire::definition::{self, Code, kind, line_table};

use super::*;
use crate::aggregate::{Leaf, NO_DEVICE, StackKey, Stacks};
use crate::batch::{Definition, ProcessBegin};
use crate::model::operation::Direction;

/// A process whose definitions have other ids than those of the next one.
fn process(number: u32, shift: u32, title: &str, line: u64) -> Process {
    let pid = 4_000 + number;
    let begin = ProcessBegin { process: number, pid, ..ProcessBegin::default() };
    let mut process = Process { number, begin, ..Process::default() };
    let mut define = |kind, id: u32, fields: &[u64], text: &[u8]| {
        let id = id + shift;
        process.definitions.add(&Definition { kind, id, fields: fields.to_vec(), text: text.to_vec() });
    };
    let of = |id: u32| u64::from(id + shift);
    let code = Code {
        first_line: line,
        table_form: line_table::LNOTAB,
        table_bytes: 6,
        more: 21 + shift,
        name: b"step",
        file: b"/home/me/serve.py",
        ..Code::default()
    };
    define(kind::PROCESS, 1, &[u64::from(pid), 1, 13_000, 0], title.as_bytes());
    define(kind::THREAD, 2, &[u64::from(pid), 0], b"python");
    define(kind::THREAD, 3, &[u64::from(pid) + 1, 0], b"python");
    define(kind::THREAD, 4, &[u64::from(pid) + 2, 0], b"loader");
    define(kind::API, 5, &[], b"cuLaunchKernel");
    define(kind::NAME, 6, &[], b"gemm");
    define(kind::LINES, 22, &[0], b"\x02\x01");
    define(kind::LINES, 21, &[of(22)], b"\x02\x01\x02\x01");
    define(kind::MODULE, 7, &[0x5500 + u64::from(number), 0, of(21), 6], b"");
    define(kind::FUNCTION, 8, &[0x7700 + u64::from(number), of(6), of(7), 32], b"");
    define(kind::CODE, 9, &code.fields(), b"step/home/me/serve.py");
    define(kind::IMAGE, 10, &[u64::from(number) << 20, 9, 7, 4, 0xabcd], b"/usr/lib/libfoo.so");
    define(kind::STACK, 11, &[of(9), 2, of(10), 0x40], b"");
    define(kind::STACK, 12, &[of(11), 0, of(9), 4, 0, 3], b"");
    define(kind::RANGE, 13, &[], b"batch");
    define(kind::RANGE, 14, &[], format!("request {number}").as_bytes());
    process
}

fn serve(number: u32) -> Process {
    process(number, number % 5 * 7, "python\0serve.py", 10)
}

/// The stacks' frames and the ranges under them, in words.
fn told(totals: &crate::model::Totals, key: &StackKey) -> String {
    let mut stacks = crate::label::StackNames::new(totals);
    let frames = stacks.frames(key.process, key.stack);
    let frames: Vec<_> = frames.iter().map(|frame| stacks.text(frame)).collect();
    let process = totals.named().find(|process| process.number == key.process).unwrap();
    let ranges: Vec<_> = process.ranges.names(key.ranges).into_iter().map(|name| name.text()).collect();
    format!("{} | {}", frames.join(" > "), ranges.join(" > "))
}

fn key(process: &Process, shift: u32, thread: u32, ranges: u32, leaf: Leaf) -> StackKey {
    StackKey {
        process: process.number,
        thread: thread + shift,
        stack: 12 + shift,
        ranges,
        api: 5 + shift,
        stream: 40 + process.number,
        device: 0,
        ..StackKey::without_call(process.number, NO_DEVICE, leaf)
    }
}

#[test]
fn what_is_the_same_in_processes_of_one_name_is_there_once() {
    let mut namesakes = Namesakes::default();
    let mut stacks = Stacks::default();
    let processes: Vec<Process> = (0..40)
        .map(|number| {
            let mut process = serve(number);
            let shift = number % 5 * 7;
            let outer = process.ranges.push(0, 0, 13 + shift, &process.definitions);
            let inner = process.ranges.push(outer, 1, 14 + shift, &process.definitions);
            process.ranges.ended(13 + shift, 500, Some((outer, 0)), &process.definitions);
            for thread in [2, 3, 4] {
                stacks.add(key(&process, shift, thread, outer, Leaf::Kernel(6 + shift)), Some(7));
            }
            stacks.add(key(&process, shift, 2, inner, Leaf::Function(8 + shift)), Some(7));
            process
        })
        .collect();
    assert_eq!(stacks.sorted().len(), 160);
    stacks.tell_together(&mut namesakes.take(processes[..39].iter()));
    // The last one is told by itself.
    assert_eq!(stacks.sorted().iter().filter(|(key, _)| key.process == 39).count(), 4);
    assert_eq!((stacks.total_ns(), namesakes.processes()), (160 * 7, 39));
    stacks.tell_together(&mut namesakes.take(processes[39..].iter()));
    let groups = namesakes.into_processes();
    let [group] = &groups[..] else { panic!("{} groups", groups.len()) };
    // PROCESS, three threads, entry, name, two pieces of lines, module, function, code, image, two stacks.
    assert_eq!(group.definitions.len(), 14);
    let spans: Vec<_> = group.ranges.spans_by_name().filter(|(_, spans)| spans.count > 0).collect();
    let [(name, spans)] = spans[..] else { panic!("{spans:?}") };
    assert_eq!((name.text(), spans.count, spans.host_ns), ("batch".to_owned(), 40, 40 * 500));
    let number = group.number;
    let totals = crate::model::Totals { together: groups, ..Default::default() };
    let mut inner = 0;
    for (key, weight) in stacks.sorted() {
        assert_eq!(key.process, number);
        let text = told(&totals, &key);
        let frames = "step serve.py:11 > [libfoo.so+0x40] > step serve.py:12 > [3 frames missing]";
        match key.leaf {
            Leaf::Kernel(_) => {
                assert_eq!((text, weight.count), (format!("{frames} | batch"), 40));
            }
            Leaf::Function(_) => {
                inner += weight.count;
                assert!(text.starts_with(&format!("{frames} | batch > request ")), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(inner, 40);
}

#[test]
fn names_ranks_and_devices_tell_groups_apart() {
    let mut namesakes = Namesakes::with_room(3, 1 << 20);
    let with_rank = |number, rank: u64| {
        let mut process = Process { number, ..Process::default() };
        let fields = vec![1, 1, 1, 0, rank];
        let text = b"train".to_vec();
        process.definitions.add(&Definition { kind: kind::PROCESS, id: 1, fields, text });
        process
    };
    let with_device = |mut process: Process, uuid: u64| {
        let mut fields = [0; 24];
        fields[definition::device::UUID_LOW] = uuid;
        let fields = fields.to_vec();
        process.definitions.add(&Definition { kind: kind::DEVICE, id: 60, fields, text: b"GPU".to_vec() });
        process
    };
    let titled = |number: u32| process(number, 0, &format!("worker {} of 8", 4_000 + number), 10);
    let mut processes = vec![with_rank(0, 1), with_rank(1, 2), with_rank(2, 1), titled(3), titled(4)];
    // No room for more names.
    processes.extend([process(5, 0, "one", 1), with_device(process(6, 0, "two", 1), 9)]);
    let renumbering = namesakes.take(processes.iter());
    let numbers: Vec<_> = (0..7).map(|number| renumbering.process(number).unwrap() - FIRST_NUMBER).collect();
    assert_eq!(numbers, [0, 1, 0, 2, 2, 3, 3]);
    assert_eq!(renumbering.process(7), None);
    let groups = namesakes.into_processes();
    assert_eq!(
        groups[3].definitions.devices().count(),
        0,
        "of all other programs an ordinal is no one device"
    );
    // An ordinal is one device in each group.
    let mut namesakes = Namesakes::default();
    let [one, other] = [7, 8].map(|uuid| with_device(process(uuid as u32 - 7, 0, "a", 1), uuid));
    let renumbering = namesakes.take([&one, &other].into_iter());
    assert_ne!(renumbering.process(0), renumbering.process(1));
    assert_eq!(namesakes.into_processes()[1].definitions.device_by_ordinal(0).unwrap().uuid, [8, 0]);
    let names: Vec<String> = groups
        .iter()
        .map(|group| crate::names::process_name(&group.definitions.process().unwrap()))
        .collect();
    assert_eq!(names, ["train", "train", "worker # of 8", "(other programs)"]);
}

#[test]
fn what_has_no_room_is_told_by_its_sum() {
    let mut namesakes = Namesakes::with_room(10, 20_000);
    let mut stacks = Stacks::default();
    let processes: Vec<Process> = (0..500)
        .map(|number| {
            // Each is another function.
            let mut process = process(number, 0, "python\0serve.py", 10 + u64::from(number));
            let outer = process.ranges.push(0, 0, 13, &process.definitions);
            let name = format!("range {}", "x".repeat(number as usize)).into_bytes();
            process.definitions.add(&Definition {
                kind: kind::RANGE,
                id: 30,
                fields: Vec::new(),
                text: name,
            });
            let inner = process.ranges.push(outer, 1, 30, &process.definitions);
            process.ranges.ended(30, 10, Some((inner, 1)), &process.definitions);
            stacks.add(key(&process, 0, 2, inner, Leaf::Kernel(6)), Some(7));
            process
        })
        .collect();
    stacks.tell_together(&mut namesakes.take(processes.iter()));
    assert_eq!(stacks.total_ns(), 500 * 7);
    let beyond = stacks.beyond();
    assert!((300..500).contains(&beyond.count), "{beyond:?}");
    assert_eq!(stacks.sorted().iter().map(|(_, weight)| weight.count).sum::<u64>(), 500);
    let groups = namesakes.into_processes();
    let held: usize = groups.iter().map(Process::held_bytes).sum();
    assert!(held < 60_000, "{held}");
    let spans = groups[0].ranges.spans_by_name();
    let (named, others): (Vec<_>, Vec<_>) = spans.partition(|(name, _)| &*name.name != "(other ranges)");
    let count = |of: &[(&crate::model::RangeName, crate::model::Spans)]| -> u64 {
        of.iter().map(|(_, spans)| spans.count).sum()
    };
    assert_eq!(count(&named) + count(&others), 500);
    assert!(count(&named) > 5 && count(&others) > 200, "{} {}", count(&named), count(&others));
}

/// Stacks that begin with themselves, with each other, and with thousands of others.
#[test]
fn hostile_definitions_end() {
    let mut process = process(0, 0, "evil", 1);
    let mut define = |kind, id: u32, fields: &[u64], text: &[u8]| {
        process.definitions.add(&Definition { kind, id, fields: fields.to_vec(), text: text.to_vec() });
    };
    define(kind::STACK, 100, &[100, 0, 100, 0], b"");
    define(kind::STACK, 101, &[102, 0], b"");
    define(kind::STACK, 102, &[101, 0], b"");
    define(kind::LINES, 103, &[103], b"xy");
    define(kind::CODE, 104, &[0, 0, 1, 1, 1, 1, u64::MAX, 103], b"f/");
    define(kind::MODULE, 105, &[0, 0, 103, u64::MAX], b"");
    define(kind::FUNCTION, 106, &[0, 106, 106], b"loop");
    define(kind::CODE, 107, &[], b"");
    for id in 1_000..40_000 {
        define(kind::STACK, id, &[u64::from(id) - 1, 0, 104, 1], b"");
    }
    let mut namesakes = Namesakes::default();
    let mut renumbering = namesakes.take(std::iter::once(&process));
    let told = [100, 101, 102, 104, 105, 106, 107, 39_999, 999_999].map(|id| renumbering.definition(0, id));
    assert!(told.iter().all(Option::is_some), "{told:?}");
    assert_eq!((renumbering.definition(0, 0), renumbering.definition(1, 5)), (Some(0), None));
    assert_eq!(renumbering.ranges(0, u32::MAX), 0);
    let group = namesakes.into_processes().remove(0);
    assert!(group.definitions.len() < 800, "{}", group.definitions.len());
}

#[test]
fn leaves_that_have_no_number_stay_as_they_are() {
    let mut namesakes = Namesakes::default();
    let mut stacks = Stacks::default();
    let process = serve(0);
    for leaf in [Leaf::Call, Leaf::Copy(Direction::CpuToGpu), Leaf::Fill, Leaf::Graph(3), Leaf::Other] {
        stacks.add(StackKey::without_call(0, 0, leaf), Some(5));
    }
    stacks.tell_together(&mut namesakes.take(std::iter::once(&process)));
    let leaves: Vec<_> = stacks.sorted().iter().map(|(key, _)| (key.process, key.leaf)).collect();
    let number = FIRST_NUMBER;
    let expected = [Leaf::Call, Leaf::Copy(Direction::CpuToGpu), Leaf::Fill, Leaf::Graph(3), Leaf::Other];
    assert_eq!(leaves, expected.map(|leaf| (number, leaf)));
}

/// Told each by itself these take all the room of groups, and seconds: stacks that begin with each other, of codes that
/// share a long table.
#[test]
fn what_many_share_is_told_once() {
    const PIECES: u32 = 60;
    const MANY: u32 = 20_000;
    let mut process = process(0, 0, "evil", 1);
    let mut define = |kind, id: u32, fields: &[u64], text: &[u8]| {
        process.definitions.add(&Definition { kind, id, fields: fields.to_vec(), text: text.to_vec() });
    };
    for piece in 0..PIECES {
        let more = if piece == 0 { 0 } else { 99 + u64::from(piece) };
        define(kind::LINES, 100 + piece, &[more], &vec![piece as u8; 16 << 10]);
    }
    let code = Code { more: 99 + PIECES, name: b"f", file: b"e.py", ..Code::default() };
    for id in 0..MANY {
        let code = Code { first_line: id.into(), ..code };
        define(kind::CODE, 1_000 + id, &code.fields(), b"fe.py");
        let outer = if id == 0 { 0 } else { 20_999 + id };
        define(kind::STACK, 21_000 + id, &[outer.into(), 0, (1_000 + id).into(), 1], b"");
    }
    let mut namesakes = Namesakes::default();
    let mut renumbering = namesakes.take(std::iter::once(&process));
    assert!((0..MANY).all(|id| renumbering.definition(0, 21_000 + id).is_some()));
    let group = namesakes.into_processes().remove(0);
    // The process itself, its pieces, codes and stacks.
    assert_eq!(group.definitions.len() as u32, 1 + PIECES + 2 * MANY);
}
