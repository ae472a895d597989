//! The window on constructed streams: what is kept, what is evicted, and that snapshots can be read.

use gputrace_wire::call::{Call, Detail, Launch};
use gputrace_wire::cell::{Cell, kind};
use gputrace_wire::clock::mark::ThreadBegin;
use gputrace_wire::clock::{Anchor, tick};
use gputrace_wire::definition::kind as def;

use crate::batch::{Batch, Definition, Gap, GapReason, ProcessBegin, ProcessEnd, SessionBegin};
use crate::flight_recorder::Window;
use crate::flight_recorder::window::{QUIET_BYTES_MAX, QUIET_KEPT};
use crate::model::Model;
use crate::model::definitions::Definitions;
use crate::model::operation::{HostCall, Operation};
use crate::model::sink::Sink;
use crate::trace_file::TraceReader;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1000 * SECOND;
const LATE: u64 = u64::MAX;

#[derive(Default)]
struct CollectedCalls(Vec<HostCall>);

impl Sink for CollectedCalls {
    fn host_call(&mut self, call: &HostCall, _: &Definitions) {
        self.0.push(call.clone());
    }
    fn operation(&mut self, _: &Operation, _: &Definitions) {}
}

fn launch(at_ns: u64) -> Cell {
    let detail = Detail::Launch(Launch { grid: [7, 1, 1], ..Launch::default() });
    Call { kind: kind::LAUNCH, start_ticks: at_ns, duration_ticks: 10, detail, ..Call::default() }.to_cell()
}

fn begin(process: u32) -> Batch {
    Batch::ProcessBegin(ProcessBegin {
        process,
        pid: 100 + process,
        tick_kind: tick::MONOTONIC_NS,
        start_monotonic_ns: START,
        ..ProcessBegin::default()
    })
}

fn cells(process: u32, cells: Vec<Cell>) -> Batch {
    Batch::Cells { process, ring: 3, cells }
}

fn window(seconds: u64, bytes_max: usize, batches: &[Batch]) -> Window {
    let mut window = Window::new(seconds * SECOND, bytes_max).unwrap();
    let session = Batch::SessionBegin(SessionBegin { monotonic_ns: START, ..SessionBegin::default() });
    for batch in std::iter::once(&session).chain(batches) {
        window.push(batch, LATE).unwrap();
    }
    window
}

/// A process with a ring of thread 9 that launches once a second.
fn launches(process: u32, count: u64) -> Vec<Batch> {
    let mark = ThreadBegin { thread: 9, ticks: START }.to_cell();
    let mut batches = vec![begin(process), cells(process, vec![mark])];
    batches.extend((0..count).map(|second| cells(process, vec![launch(START + second * SECOND)])));
    batches
}

#[test]
fn events_are_evicted_by_their_own_times_and_counted() {
    let window = window(5, usize::MAX, &launches(0, 60));
    let snapshot = window.snapshot("exit", LATE);
    let (totals, CollectedCalls(calls)) = snapshot.model(CollectedCalls::default()).unwrap();
    let starts: Vec<_> = calls.iter().map(|call| (call.start_ns - START) / SECOND).collect();
    assert_eq!(starts, [54, 55, 56, 57, 58, 59]);
    assert!(calls.iter().all(|call| call.thread == 9), "the ring's mark was in the first batch");
    let excerpt = totals.sessions[0].excerpt.clone().unwrap();
    assert_eq!(excerpt.left_out.launches + totals.counts.launches, 60);
    assert_eq!((excerpt.from_ns, excerpt.to_ns), (START + 54 * SECOND + 10, START + 59 * SECOND + 10));
    assert_eq!(excerpt.left_out.over_capacity, 0);
    assert_eq!(totals.wall_ns(), 5 * SECOND);
}

#[test]
fn memory_is_bounded_and_evicted_events_are_counted() {
    let window = window(3600, 8 << 10, &launches(0, 2000));
    assert!(window.bytes() <= 8 << 10, "{}", window.bytes());
    let (totals, _) = window.snapshot("exit", LATE).model(()).unwrap();
    let excerpt = totals.sessions[0].excerpt.clone().unwrap();
    assert!(excerpt.left_out.over_capacity > 1000);
    assert_eq!(excerpt.left_out.launches + totals.counts.launches, 2000);
}

#[test]
fn days_of_anchors_neither_grow_nor_evict_events() {
    let mut batches = launches(0, 3);
    batches.extend((0..10_000u64).map(|second| {
        let at = START + second * SECOND;
        let anchor = Anchor { ticks: at, monotonic_ns: at, ..Anchor::default() };
        Batch::Cells { process: 0, ring: 1, cells: vec![anchor.to_cell()] }
    }));
    let window = window(5, usize::MAX, &batches);
    assert!(window.bytes() < 8 << 10, "{}", window.bytes());
    let (totals, _) = window.snapshot("exit", LATE).model(()).unwrap();
    assert_eq!(totals.counts.launches, 3);
}

#[test]
fn exited_process_is_evicted_after_its_last_event_and_gaps_stay() {
    let mut batches = launches(0, 3);
    let at = START + 3 * SECOND;
    batches.push(Batch::ProcessEnd { process: 0, end: ProcessEnd::Exit, monotonic_ns: at });
    batches.push(begin(1));
    let gap = Gap { reason: GapReason::DamagedRing, count: 4 };
    batches.push(cells(1, vec![gap.to_cell()]));
    batches.extend((0..60).map(|second| cells(1, vec![launch(START + second * SECOND)])));
    let (totals, _) = window(5, usize::MAX, &batches).snapshot("exit", LATE).model(()).unwrap();
    assert_eq!(totals.processes.iter().map(|p| p.begin.pid).collect::<Vec<_>>(), [101]);
    let excerpt = totals.sessions[0].excerpt.clone().unwrap();
    assert_eq!((excerpt.left_out.processes, excerpt.left_out.launches), (1, 3 + 54));
    assert_eq!(totals.losses().get("damaged_rings"), Some(&4));
}

/// No event evicts them, and each has definitions.
#[test]
fn latest_programs_without_gpu_work_are_kept() {
    let mut window = window(5, usize::MAX, &launches(0, 3));
    let end = |process, end| Batch::ProcessEnd { process, end, monotonic_ns: START + 3 * SECOND };
    let text: Vec<u8> = (0..4096u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for process in 1..=5_000 {
        let record = Definition { kind: def::NAME, id: 1, fields: Vec::new(), text: text.clone() };
        let mark = ThreadBegin { thread: 9, ticks: START }.to_cell();
        for batch in [
            begin(process),
            Batch::Definitions { process, records: vec![record] },
            cells(process, vec![mark]),
            end(process, ProcessEnd::Vanished),
        ] {
            window.push(&batch, LATE).unwrap();
        }
        let held = window.processes().count();
        assert!(held <= 2 * QUIET_KEPT, "{held}");
        assert!(window.bytes() < 2 * QUIET_KEPT * 8192, "{} of {held}", window.bytes());
    }
    let (totals, _) = window.snapshot("exit", LATE).model(()).unwrap();
    let pids: Vec<u32> = totals.processes.iter().map(|process| process.begin.pid).collect();
    let quiet = pids.len() - 1;
    assert!((QUIET_KEPT..2 * QUIET_KEPT).contains(&quiet), "{quiet}");
    assert_eq!((pids[0], totals.counts.launches), (100, 3), "the process with events is kept");
    assert_eq!(pids[1..], (5_101 - quiet as u32..5_101).collect::<Vec<_>>());
    let excerpt = totals.sessions[0].excerpt.clone().unwrap();
    assert_eq!(excerpt.left_out.processes, 5_000 - quiet as u64);
}

/// Bytes that cannot be compressed.
fn noise(bytes: u32, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn latest_programs_without_gpu_work_are_kept_within_a_byte_limit() {
    const PROGRAMS: u32 = 100;
    const DEFINED: u32 = 1 << 20;
    let mut window = window(5, usize::MAX, &launches(0, 3));
    let mut most_bytes = 0;
    for process in 1..=PROGRAMS {
        let records = (1..=DEFINED / 4096).map(|id| {
            let text = noise(4096, process << 16 | id);
            Definition { kind: def::CODE, id, fields: Vec::new(), text }
        });
        let end = Batch::ProcessEnd { process, end: ProcessEnd::Exit, monotonic_ns: START + 3 * SECOND };
        let definitions = Batch::Definitions { process, records: records.collect() };
        for batch in [begin(process), definitions, end] {
            window.push(&batch, LATE).unwrap();
        }
        most_bytes = most_bytes.max(window.bytes());
    }
    // The limit is exceeded by one process before it is applied.
    assert!(most_bytes < QUIET_BYTES_MAX + 3 * DEFINED as usize / 2, "{most_bytes}");
    assert!(most_bytes > QUIET_BYTES_MAX / 2, "{most_bytes}");
    let (totals, _) = window.snapshot("exit", LATE).model(()).unwrap();
    let pids: Vec<u32> = totals.processes.iter().map(|process| process.begin.pid).collect();
    let quiet = pids.len() as u32 - 1;
    assert!((7..=16).contains(&quiet), "{quiet}");
    assert_eq!((pids[0], totals.counts.launches), (100, 3), "the process with events is kept");
    assert_eq!(pids[1..], (101 + PROGRAMS - quiet..101 + PROGRAMS).collect::<Vec<_>>());
    let excerpt = totals.sessions[0].excerpt.clone().unwrap();
    assert_eq!(excerpt.left_out.processes, u64::from(PROGRAMS - quiet));
    // One process that exceeds the limit alone is kept.
    let records = |ids: std::ops::RangeInclusive<u32>| {
        let record = |id| Definition { kind: def::CODE, id, fields: Vec::new(), text: noise(16 << 10, id) };
        Batch::Definitions { process: PROGRAMS + 1, records: ids.map(record).collect() }
    };
    let process = PROGRAMS + 1;
    let end = Batch::ProcessEnd { process, end: ProcessEnd::Exit, monotonic_ns: START + 3 * SECOND };
    for batch in [begin(process), records(1..=1100), end] {
        window.push(&batch, LATE).unwrap();
    }
    let held: Vec<u32> = window.processes().map(|kept| kept.begin.process).collect();
    assert_eq!(held, [0, process]);
}

#[test]
fn future_times_of_one_process_evict_no_other() {
    let mut window = window(5, usize::MAX, &launches(0, 3));
    window.push(&begin(1), START + 3 * SECOND).unwrap();
    window.push(&cells(1, vec![launch(START + 9999 * SECOND)]), START + 3 * SECOND).unwrap();
    let (totals, _) = window.snapshot("exit", LATE).model(()).unwrap();
    assert_eq!(totals.counts.launches, 4);
}

#[test]
fn file_of_a_snapshot_equals_the_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.gputrace");
    let snapshot = window(5, usize::MAX, &launches(0, 60)).snapshot("signal", START + 60 * SECOND);
    snapshot.write(&path).unwrap();
    let mut reader = TraceReader::open(&path).unwrap();
    let mut model = Model::new(CollectedCalls::default());
    reader.by_ref().for_each(|batch| model.consume(&batch));
    assert_eq!(reader.damage(), None);
    let (totals, CollectedCalls(calls)) = model.finish();
    let (expected, CollectedCalls(expected_calls)) = snapshot.model(CollectedCalls::default()).unwrap();
    assert_eq!(calls, expected_calls);
    assert_eq!(totals.counts, expected.counts);
    assert_eq!(totals.sessions, expected.sessions);
    assert_eq!(totals.sessions[0].excerpt.as_ref().unwrap().reason, "signal");
    assert_eq!(totals.processes[0].end.map(|(end, _)| end), Some(ProcessEnd::Running));
}
