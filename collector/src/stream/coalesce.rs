//! Gathers the few cells from each read of a ring into batches that compress well.
//!
//! All rings of a process are flushed together, so that events of one time are close in the stream. Clocks
//! come first, since times are mapped by the latest anchors, and device records last, so that most of them
//! find their calls.

use gputrace_wire::cell::{Cell, kind};

use crate::batch::Batch;

/// A process is flushed when one of its rings has gathered this many cells: half a megabyte. Larger batches
/// hardly compress better.
pub const CELLS_FULL: usize = 8192;

#[derive(Debug, Default)]
pub struct Coalescer {
    pending: Vec<PendingCells>,
}

#[derive(Debug)]
struct PendingCells {
    process: u32,
    ring: u32,
    cells: Vec<Cell>,
}

impl Coalescer {
    /// Where to append a ring's next whole entries.
    pub fn cells(&mut self, process: u32, ring: u32) -> &mut Vec<Cell> {
        let known = self.pending.iter().position(|p| p.process == process && p.ring == ring);
        let at = known.unwrap_or_else(|| {
            self.pending.push(PendingCells { process, ring, cells: Vec::new() });
            self.pending.len() - 1
        });
        // The index was just found or made.
        #[expect(clippy::indexing_slicing)]
        &mut self.pending[at].cells
    }

    /// Whether the process has gathered enough.
    pub fn is_full(&self, process: u32) -> bool {
        self.pending.iter().any(|p| p.process == process && p.cells.len() >= CELLS_FULL)
    }

    /// Emits all cells of one process.
    pub fn flush(&mut self, process: u32, out: &mut impl FnMut(Batch)) {
        let (mut now, later) =
            std::mem::take(&mut self.pending).into_iter().partition::<Vec<_>, _>(|p| p.process == process);
        self.pending = later;
        now.sort_by_key(|pending| (rank(&pending.cells), pending.ring));
        for PendingCells { process, ring, cells } in now {
            if !cells.is_empty() {
                out(Batch::Cells { process, ring, cells });
            }
        }
    }

    /// Emits all cells, process by process.
    pub fn flush_all(&mut self, out: &mut impl FnMut(Batch)) {
        let mut processes: Vec<_> = self.pending.iter().map(|pending| pending.process).collect();
        processes.sort_unstable();
        processes.dedup();
        processes.into_iter().for_each(|process| self.flush(process, out));
    }
}

/// The order of a ring: anchors, then calls, then device records, by its first entry of these kinds.
fn rank(cells: &[Cell]) -> u8 {
    let mut rest = cells;
    while let Some(first) = rest.first() {
        match first.kind() {
            kind::ANCHOR => return 0,
            kind::DEVICE_KERNEL..=47 => return 2,
            kind::THREAD_BEGIN | kind::EPOCH_BEGIN | kind::GAP | kind::RECORDING | kind::DEVICE_TIMES => {}
            _ => return 1,
        }
        rest = rest.get(usize::from(first.cells()).max(1)..).unwrap_or(&[]);
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flushed(coalescer: &mut Coalescer) -> Vec<(u32, u32, usize)> {
        let mut out = Vec::new();
        coalescer.flush_all(&mut |batch| match batch {
            Batch::Cells { process, ring, cells } => out.push((process, ring, cells.len())),
            other => panic!("{other:?}"),
        });
        out
    }

    #[test]
    fn process_goes_out_whole_clocks_first_and_records_last() {
        let mut coalescer = Coalescer::default();
        coalescer.cells(1, 0).push(Cell::new(kind::DEVICE_COPY, 1, 0));
        coalescer.cells(0, 0).push(Cell::new(kind::DEVICE_KERNEL, 2, 0));
        coalescer.cells(0, 0).push(Cell::ZERO);
        coalescer.cells(0, 3).push(Cell::new(kind::LAUNCH, 1, 0));
        coalescer.cells(0, 1).push(Cell::new(kind::THREAD_BEGIN, 1, 0));
        coalescer.cells(0, 1).push(Cell::new(kind::ANCHOR, 1, 0));
        coalescer.cells(0, 3).push(Cell::new(kind::WAIT, 1, 0));
        assert_eq!(flushed(&mut coalescer), [(0, 1, 2), (0, 3, 2), (0, 0, 2), (1, 0, 1)]);
        assert_eq!(flushed(&mut coalescer), []);
    }

    #[test]
    fn full_ring_makes_its_process_full() {
        let mut coalescer = Coalescer::default();
        coalescer.cells(5, 2).resize(CELLS_FULL - 1, Cell::new(kind::LAUNCH, 1, 0));
        coalescer.cells(6, 2);
        assert!(!coalescer.is_full(5));
        coalescer.cells(5, 2).push(Cell::new(kind::LAUNCH, 1, 0));
        assert!(coalescer.is_full(5) && !coalescer.is_full(6));
    }
}
