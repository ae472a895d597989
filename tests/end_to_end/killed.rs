//! Programs killed at random moments: what they had published is in the trace, in order, once.

use std::collections::{HashMap, HashSet};

use gputrace_collector::batch::{Batch, Counters, ProcessEnd};
use gputrace_collector::trace_file::TraceReader;
use gputrace_wire::call::{Call, Detail};
use gputrace_wire::cell::kind;
use gputrace_wire::device::Kernel;

use crate::harness::tool::{Traced, run};

/// Two sessions of 500: the second one's processes come into a collector that is already old.
const SESSIONS: u64 = 2;
const KILLS: usize = 500;

/// What the trace has of one process.
#[derive(Default)]
struct Seen {
    pid: u32,
    /// Grids of its launches, in the order of the stream.
    launches: Vec<[u32; 3]>,
    /// Grids of its kernels' records.
    records: Vec<[u32; 3]>,
    entries: u64,
    rings: HashSet<u32>,
    counters: Counters,
    end: Option<ProcessEnd>,
}

/// A child as its parent saw it.
struct Killed {
    pid: u32,
    /// The last launch that had returned.
    returned: u32,
}

fn read(traced: &Traced) -> HashMap<u32, Seen> {
    let mut processes: HashMap<u32, Seen> = HashMap::new();
    let mut reader = TraceReader::open(&traced.trace()).unwrap();
    for batch in reader.by_ref() {
        match batch {
            Batch::ProcessBegin(begin) => {
                let known = processes.insert(begin.process, Seen { pid: begin.pid, ..Seen::default() });
                assert!(known.is_none(), "process {} begins twice", begin.process);
            }
            Batch::Cells { process, ring, cells } => {
                let seen = processes.get_mut(&process).unwrap();
                let mut rest = cells.as_slice();
                while let Some(first) = rest.first() {
                    match first.kind() {
                        kind::LAUNCH => match Call::from_cell(first).unwrap().detail {
                            Detail::Launch(launch) => seen.launches.push(launch.grid),
                            other => panic!("{other:?}"),
                        },
                        kind::DEVICE_KERNEL => seen.records.push(Kernel::from_cells(first, &rest[1]).grid),
                        _ => {}
                    }
                    if first.kind() != kind::GAP {
                        seen.entries += 1;
                        seen.rings.insert(ring);
                    }
                    rest = &rest[usize::from(first.cells())..];
                }
            }
            Batch::Counters(counters) => {
                processes.get_mut(&counters.process).unwrap().counters = counters.clone();
            }
            Batch::ProcessEnd { process, end, .. } => processes.get_mut(&process).unwrap().end = Some(end),
            Batch::SessionBegin(_)
            | Batch::Excerpt(_)
            | Batch::SizeLimit(_)
            | Batch::SeriesFile(_)
            | Batch::Definitions { .. }
            | Batch::DeviceSamples(_)
            | Batch::Unrecorded(_)
            | Batch::SessionEnd { .. } => {}
        }
    }
    assert_eq!(reader.damage(), None);
    processes
}

/// One child: every launch that had returned is there, at most the one under way besides, each
/// once and in order; and so are the device's records of them.
fn check(index: u32, killed: &Killed, seen: Option<&Seen>) {
    let Some(seen) = seen else {
        // Killed before it had joined.
        assert_eq!(killed.returned, 0, "child {index} is missing");
        return;
    };
    assert_eq!(seen.pid, killed.pid, "child {index}");
    assert_eq!(seen.end, Some(ProcessEnd::Vanished), "child {index}");
    let expected: Vec<_> = (1..).map(|number| [number, index + 1, 1]).take(seen.launches.len()).collect();
    assert!(seen.launches == expected, "child {index}: launches are missing, doubled or out of order");
    let launches = seen.launches.len() as u32;
    let returned = killed.returned;
    assert!((returned..=returned + 1).contains(&launches), "child {index}: {launches} of {returned}");
    // No record is doubled, and each is of a launch. They need not be in the order of the launches: the
    // service thread may read the buffer that CUPTI fills before CUPTI's thread passes on the one before it.
    // That none that was published is missing, the count of what was written says: it may be one behind in
    // each ring.
    let numbers: HashSet<u32> = seen.records.iter().map(|grid| grid[0]).collect();
    assert_eq!(numbers.len(), seen.records.len(), "child {index}: a record is doubled");
    let is_known = |grid: &[u32; 3]| (1..=launches + 1).contains(&grid[0]) && grid[1] == index + 1;
    assert!(seen.records.iter().all(is_known), "child {index}: a record is of no launch");
    assert!(seen.records.len() <= launches as usize + 1, "child {index}");
    assert_eq!(seen.counters.ring_full, 0, "child {index}");
    let (written, rings) = (seen.counters.written, seen.rings.len() as u64);
    let entries = seen.entries;
    assert!((written..=written + rings).contains(&entries), "child {index}: {entries} of {written}");
}

#[test]
fn thousand_kills_at_random_moments_lose_nothing_that_was_published() {
    let (mut kills, mut joined, mut launched, mut records, mut cut) = (0, 0, 0u64, 0u64, 0);
    for session in 0..SESSIONS {
        let seed = 20_261_121 + session;
        let traced = run("killed")
            .arg(seed.to_string())
            .arg(KILLS.to_string())
            .arg("4")
            .env("GPUTRACE_SIM_PACE", "off")
            .succeed();
        let seen = read(&traced);
        // A child is known by what it wrote; one that wrote nothing, by its number in the kernel.
        let by_index: HashMap<u32, &Seen> =
            seen.values().filter_map(|seen| Some((seen.launches.first()?[1] - 1, seen))).collect();
        let by_pid: HashMap<u32, &Seen> =
            seen.values().filter(|seen| seen.launches.is_empty()).map(|seen| (seen.pid, seen)).collect();
        for line in traced.ended.stdout.lines() {
            let numbers: Vec<u32> = line.split(' ').map(|number| number.parse().unwrap()).collect();
            let killed = Killed { pid: numbers[1], returned: numbers[2] };
            let seen = by_index.get(&numbers[0]).or_else(|| by_pid.get(&killed.pid)).copied();
            check(numbers[0], &killed, seen);
            kills += 1;
            joined += usize::from(seen.is_some());
            launched += u64::from(killed.returned);
            let launches = seen.map_or(0, |seen| seen.launches.len() as u64);
            cut += usize::from(launches > u64::from(killed.returned));
            records += seen.map_or(0, |seen| seen.records.len() as u64);
        }
        let refused = "not recorded";
        assert!(!traced.ended.stderr.contains(refused), "{}", traced.ended.stderr);
    }
    assert_eq!(kills, SESSIONS as usize * KILLS);
    // That the moments were of all kinds.
    println!(
        "{kills} kills, {joined} joined, {cut} between publishing and returning, {launched} launches, {records} records"
    );
    assert!(joined > kills / 2 && launched > 100_000 && records > 500);
}
