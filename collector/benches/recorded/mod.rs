//! A recorded trace without end: three steps of a PyTorch training run on an H200, repeated with later times
//! and other correlation ids. The definitions stay the same.

use std::path::Path;

use gputrace_collector::batch::{Batch, Counters};
use gputrace_collector::trace_file::TraceReader;
use gputrace_wire::cell::{Cell, kind};

/// The recorder passes on all rings of a process when one has so many cells.
const CELLS_FULL: usize = 8192;

/// Host calls, device records and ranges of one round, by ring in the order in which they go out.
pub struct Recorded {
    /// Session, process and definitions.
    pub head: Vec<Batch>,
    rings: Vec<(u32, Vec<Cell>)>,
    /// The number of entries of one round, and of kernel records among them.
    pub entries: u64,
    pub kernels: u64,
    /// The number of device records: every call of this trace has its record.
    pub executed: u64,
    correlations: u64,
    /// From the first to the last, by the processor's clock and by the others.
    ticks: u64,
    span_ns: u64,
    first: [u64; 2],
    /// The factor by which the times of a round are compressed.
    scale: f64,
    counters: Counters,
}

/// A part of the stream: the cells of each ring when one of them was full.
pub type Part = Vec<(u32, Vec<Cell>)>;

impl Recorded {
    pub fn pytorch() -> Recorded {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/pytorch-h200.gputrace");
        Recorded::open(&path)
    }

    fn open(path: &Path) -> Recorded {
        let mut head = Vec::new();
        let mut rings: Vec<(u32, Vec<Cell>)> = Vec::new();
        let mut counters = Counters::default();
        for batch in TraceReader::open(path).unwrap() {
            match batch {
                Batch::Cells { ring, cells, .. } => {
                    match rings.iter_mut().find(|(known, _)| *known == ring) {
                        Some((_, all)) => all.extend(cells),
                        None => rings.push((ring, cells)),
                    }
                }
                Batch::Counters(last) => counters = last,
                Batch::ProcessEnd { .. } | Batch::SessionEnd { .. } => {}
                begin => head.push(begin),
            }
        }
        let mut recorded = Recorded {
            head,
            rings,
            entries: 0,
            kernels: 0,
            executed: 0,
            correlations: 0,
            ticks: 0,
            span_ns: 0,
            first: [0; 2],
            scale: 1.0,
            counters,
        };
        let (mut first, mut last) = ([u64::MAX; 2], [0u64; 2]);
        let mut note = |which: usize, at: u64| {
            if at != 0 {
                first[which] = first[which].min(at);
                last[which] = last[which].max(at);
            }
        };
        for entry in recorded.rings.iter().flat_map(|(_, cells)| entries(cells)) {
            let cell = &entry[0];
            match cell.kind() {
                kind::LAUNCH..=kind::CALL | kind::MEMORY => {
                    recorded.entries += 1;
                    recorded.correlations = recorded.correlations.max(cell.u32_at(20).into());
                    note(0, cell.u64_at(8));
                }
                kind::DEVICE_KERNEL..=47 => {
                    recorded.entries += 1;
                    recorded.executed += 1;
                    recorded.kernels += u64::from(cell.kind() == kind::DEVICE_KERNEL);
                    recorded.correlations = recorded.correlations.max(cell.u32_at(4).into());
                    note(1, cell.u64_at(16));
                }
                kind::RANGE_PUSH..=kind::MARK => recorded.entries += 1,
                kind::ANCHOR => {
                    note(0, cell.u64_at(8));
                    note(1, cell.u64_at(32));
                }
                _ => {}
            }
        }
        // Both clocks advance by the same time, computed with the trace's own rate.
        let rate = head_rate(&recorded.head);
        recorded.first = first;
        recorded.ticks = last[0] - first[0] + 1_000;
        recorded.span_ns = (recorded.ticks as f64 * 1e9 / rate) as u64;
        recorded
    }

    /// Appends the cells of a round, with times `round` rounds later. The first marks of a ring come only
    /// once.
    fn round(&self, round: u64, into: &mut [(u32, Vec<Cell>)]) {
        let moved = |at: u64, first: u64, by: u64| {
            let since = at.wrapping_sub(first).cast_signed();
            let since = if self.scale == 1.0 { since } else { (since as f64 * self.scale) as i64 };
            first.wrapping_add_signed(since) + by
        };
        let (ticks, ns) = (round * self.ticks, round * self.span_ns);
        // Compressed anchors would be a few microseconds apart; one in 50 ms is enough.
        let mut anchors = match self.scale {
            1.0 => usize::MAX,
            _ => usize::from(round.is_multiple_of(50_000_000 / self.span_ns.clamp(1, 50_000_000))),
        };
        for ((_, cells), (_, to)) in self.rings.iter().zip(into) {
            for entry in entries(cells) {
                let mut cell = entry[0];
                let kind_of = cell.kind();
                if round > 0 && matches!(kind_of, kind::THREAD_BEGIN | kind::EPOCH_BEGIN) {
                    continue;
                }
                if kind_of == kind::ANCHOR {
                    if anchors == 0 {
                        continue;
                    }
                    anchors -= 1;
                }
                let later = |cell: &mut Cell, at: usize, first: u64, by: u64| {
                    let was = cell.u64_at(at);
                    if was != 0 {
                        cell.put_u64(at, moved(was, first, by));
                    }
                };
                let other = |cell: &mut Cell, at: usize| {
                    let was = cell.u32_at(at);
                    if was != 0 {
                        cell.put_u32(at, was.wrapping_add((round * (self.correlations + 1)) as u32));
                    }
                };
                match kind_of {
                    kind::LAUNCH..=kind::CALL | kind::MEMORY => {
                        later(&mut cell, 8, self.first[0], ticks);
                        other(&mut cell, 20);
                    }
                    kind::DEVICE_KERNEL..=47 => {
                        let took = cell.u64_at(16).saturating_sub(cell.u64_at(8));
                        later(&mut cell, 8, self.first[1], ns);
                        let end = cell.u64_at(8) + took;
                        cell.put_u64(16, end);
                        other(&mut cell, 4);
                    }
                    kind::ANCHOR => {
                        let (at, monotonic_ns) = (cell.u64_at(8), cell.u64_at(16));
                        let passed_ns = (at - self.first[0]) as f64 * self.span_ns as f64 / self.ticks as f64;
                        later(&mut cell, 8, self.first[0], ticks);
                        // CLOCK_REALTIME is also scaled by its distance from the first moment.
                        let first_ns = monotonic_ns.wrapping_sub(passed_ns as u64);
                        let back = monotonic_ns - moved(monotonic_ns, first_ns, 0);
                        for at in [16, 24] {
                            let was = cell.u64_at(at);
                            cell.put_u64(at, was - back + ns);
                        }
                        later(&mut cell, 32, self.first[1], ns);
                    }
                    kind::RANGE_PUSH..=kind::MARK => {
                        later(&mut cell, 8, self.first[0], ticks);
                        if matches!(kind_of, kind::RANGE_POP | kind::RANGE_END) {
                            later(&mut cell, 24, self.first[0], ticks);
                        }
                    }
                    _ => {}
                }
                to.push(cell);
                to.extend_from_slice(&entry[1..]);
            }
        }
    }

    /// The rounds from `first` on until a ring is full, and the number of the next round.
    #[allow(dead_code)]
    pub fn part(&self, first: u64) -> (Part, u64) {
        let mut part: Part = self.rings.iter().map(|(ring, _)| (*ring, Vec::new())).collect();
        let mut round = first;
        while part.iter().all(|(_, cells)| cells.len() < CELLS_FULL) {
            self.round(round, &mut part);
            round += 1;
        }
        (part, round)
    }

    /// Compresses the times so that so many events come in a second. Durations of kernels stay the same.
    #[allow(dead_code)]
    pub fn at_rate(mut self, events_a_second: u64) -> Recorded {
        let ns = self.entries * 1_000_000_000 / events_a_second;
        self.scale = ns as f64 / self.span_ns as f64;
        self.ticks = (self.ticks as f64 * self.scale) as u64;
        self.span_ns = ns;
        self
    }

    /// The cells of some rounds, by ring.
    #[allow(dead_code)]
    pub fn rounds(&self, rounds: std::ops::Range<u64>) -> Part {
        let mut part: Part = self.rings.iter().map(|(ring, _)| (*ring, Vec::new())).collect();
        rounds.for_each(|round| self.round(round, &mut part));
        part
    }

    /// The process's counters.
    #[allow(dead_code)]
    pub fn counters(&self) -> Batch {
        Batch::Counters(self.counters.clone())
    }
}

fn entries(cells: &[Cell]) -> impl Iterator<Item = &[Cell]> {
    let mut rest = cells;
    std::iter::from_fn(move || {
        let length = usize::from(rest.first()?.cells()).max(1);
        let (entry, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        Some(entry)
    })
}

/// Ticks a second.
fn head_rate(head: &[Batch]) -> f64 {
    let begin = head.iter().find_map(|batch| match batch {
        Batch::ProcessBegin(begin) => Some(begin.ticks_per_second),
        _ => None,
    });
    begin.filter(|rate| *rate > 0).unwrap_or(1_000_000_000) as f64
}
