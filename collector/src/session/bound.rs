//! `--max-size`: the trace file holds the first part of the stream, up to a number of bytes.
//!
//! Everything is admitted while it fits. Space is reserved for what a whole file needs: each process's last
//! counters and its end, a gap for each of its rings, and the session's end. Once a batch no longer fits,
//! events and definitions are left out and counted by kind; each ring's gap says how many of its entries are
//! missing. Processes that begin after that are not in the file at all, and what they lost is counted with
//! what is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use gputrace_wire::cell::Cell;

use crate::batch::{Batch, Counters, DeviceSample, Gap, GapReason, LeftOut, SizeLimit};
use crate::trace_file::{BLOCK_HEADER_BYTES, BlockEncoder};

/// Bytes of the end of the session: the size limit twice, lines about processes that are not recorded, and
/// the session's end.
const END_BYTES: u64 = 512 + UNRECORDED_BYTES as u64;
/// The most bytes of those lines. Lines beyond them are replaced by their number.
const UNRECORDED_BYTES: usize = 4096;
/// Bytes of the end of a process: counters, end, and the gap of rings that came too late.
const PROCESS_BYTES: u64 = 1024;
/// Bytes of a gap.
const RING_BYTES: u64 = 256;
/// The ring number of gaps for entries of rings that began after the limit was reached.
const NO_RING: u32 = u32::MAX;
/// How often a batch of events is halved until a part of it fits.
const HALVINGS: u32 = 5;

/// What to store of a batch.
#[derive(PartialEq, Debug)]
pub(super) enum Admitted {
    Whole,
    Instead(Vec<Batch>),
}

pub(super) struct Bound {
    max_bytes: u64,
    encoder: BlockEncoder,
    /// Processes that are in the file and have not ended, and rings that have entries in the file.
    processes: BTreeSet<u32>,
    rings: BTreeSet<(u32, u32)>,
    /// Since the limit was reached: what was left out, also by ring, and the processes' counters.
    reached: Option<LeftOut>,
    gaps: BTreeMap<(u32, u32), u64>,
    counters: BTreeMap<u32, Counters>,
}

impl Bound {
    pub fn new(max_bytes: u64) -> io::Result<Bound> {
        Ok(Bound {
            max_bytes,
            encoder: BlockEncoder::new()?,
            processes: BTreeSet::new(),
            rings: BTreeSet::new(),
            reached: None,
            gaps: BTreeMap::new(),
            counters: BTreeMap::new(),
        })
    }

    /// The limit and what it leaves out so far, once it is reached.
    pub fn reached(&self) -> Option<SizeLimit> {
        self.reached.map(|left_out| SizeLimit { max_bytes: self.max_bytes, left_out })
    }

    /// Decides what is stored of a batch after `file_bytes` bytes.
    pub fn admit(&mut self, batch: &Batch, file_bytes: u64) -> io::Result<Admitted> {
        if self.reached.is_none() {
            let (reserves, ends) = self.note(batch);
            if reserves == 0 && ends || self.fits(batch, file_bytes)? {
                return Ok(Admitted::Whole);
            }
            self.forget(batch, reserves);
            self.reached = Some(LeftOut::default());
            let mut stored = Vec::new();
            let rest = match self.first_part(batch, file_bytes)? {
                Some((first, rest)) => {
                    stored.push(first);
                    rest
                }
                None => batch.clone(),
            };
            stored.extend(self.leave_out(&rest));
            // Shows that the file is a part, even if the collector is killed before its end.
            stored.extend(self.reached().map(Batch::SizeLimit));
            return Ok(Admitted::Instead(stored));
        }
        Ok(Admitted::Instead(self.leave_out(batch)))
    }

    /// Notes processes and rings for which space must be reserved. Returns how many are new, and whether the
    /// batch has reserved space itself.
    fn note(&mut self, batch: &Batch) -> (u64, bool) {
        match batch {
            Batch::ProcessBegin(begin) => (u64::from(self.processes.insert(begin.process)), false),
            Batch::Cells { process, ring, .. } => (u64::from(self.rings.insert((*process, *ring))), false),
            Batch::ProcessEnd { process, .. } => {
                self.end(*process);
                (0, true)
            }
            Batch::SessionBegin(_) | Batch::Unrecorded(_) | Batch::SessionEnd { .. } => (0, true),
            _ => (0, false),
        }
    }

    /// Undoes [`Bound::note`]: the batch is not in the file.
    fn forget(&mut self, batch: &Batch, reserves: u64) {
        match batch {
            Batch::ProcessBegin(begin) if reserves > 0 => _ = self.processes.remove(&begin.process),
            Batch::Cells { process, ring, .. } if reserves > 0 => _ = self.rings.remove(&(*process, *ring)),
            _ => {}
        }
    }

    fn end(&mut self, process: u32) -> bool {
        self.rings.retain(|(of, _)| *of != process);
        self.processes.remove(&process)
    }

    fn reserved(&self) -> u64 {
        END_BYTES + PROCESS_BYTES * self.processes.len() as u64 + RING_BYTES * self.rings.len() as u64
    }

    fn fits(&mut self, batch: &Batch, file_bytes: u64) -> io::Result<bool> {
        let space = self.max_bytes.saturating_sub(file_bytes.saturating_add(self.reserved()));
        if bytes_at_most(batch) <= space {
            return Ok(true);
        }
        let mut bytes = 0;
        self.encoder.encode(batch, &mut |encoded| {
            bytes += (BLOCK_HEADER_BYTES + encoded.stored.len()) as u64;
            Ok(())
        })?;
        Ok(bytes <= space)
    }

    /// Splits a batch of events: the first part that fits, and the rest.
    fn first_part(&mut self, batch: &Batch, file_bytes: u64) -> io::Result<Option<(Batch, Batch)>> {
        let Batch::Cells { process, ring, cells } = batch else { return Ok(None) };
        let (process, ring) = (*process, *ring);
        let known = !self.rings.insert((process, ring));
        let mut length = cells.len();
        for _ in 0..HALVINGS {
            length = whole_entries(cells, length / 2);
            let (first, rest) = cells.split_at(length);
            let part = |cells: &[Cell]| Batch::Cells { process, ring, cells: cells.to_vec() };
            let first = part(first);
            if length > 0 && self.fits(&first, file_bytes)? {
                return Ok(Some((first, part(rest))));
            }
        }
        if !known {
            self.rings.remove(&(process, ring));
        }
        Ok(None)
    }

    /// Counts a batch that is left out, and returns what of it is stored all the same.
    fn leave_out(&mut self, batch: &Batch) -> Vec<Batch> {
        let Some(left_out) = &mut self.reached else { return Vec::new() };
        match batch {
            Batch::ProcessBegin(_) => left_out.processes += 1,
            Batch::Cells { process, ring, cells } => {
                let before = left_out.entries;
                left_out.note_entries(cells);
                if self.processes.contains(process) {
                    let ring = if self.rings.contains(&(*process, *ring)) { *ring } else { NO_RING };
                    *self.gaps.entry((*process, ring)).or_default() += left_out.entries - before;
                }
            }
            Batch::DeviceSamples(samples) => left_out.entries += samples.samples.len() as u64,
            // They are totals: the last ones stand.
            Batch::Counters(counters) => {
                self.counters.insert(counters.process, counters.clone());
            }
            Batch::ProcessEnd { process, .. } if !self.processes.contains(process) => {
                let lost = self.counters.remove(process).map_or(0, |counters| counters.lost());
                left_out.lost = left_out.lost.saturating_add(lost);
            }
            Batch::ProcessEnd { process, .. } => {
                self.end(*process);
                let gaps = self.gaps.extract_if(.., |(of, _), _| of == process);
                let mut stored: Vec<_> =
                    gaps.map(|((process, ring), count)| gap(process, ring, count)).collect();
                stored.extend(self.counters.remove(process).map(Batch::Counters));
                stored.push(batch.clone());
                return stored;
            }
            Batch::Unrecorded(lines) => return vec![Batch::Unrecorded(first_lines(lines))],
            Batch::SessionEnd { .. } => {
                return self.reached().map(Batch::SizeLimit).into_iter().chain([batch.clone()]).collect();
            }
            _ => {}
        }
        Vec::new()
    }
}

/// The first lines that fit, and one line with the number of the others.
fn first_lines(lines: &[String]) -> Vec<String> {
    // A block's header, the lengths, and the line about the others.
    let mut space = UNRECORDED_BYTES - 256;
    let fits = |line: &&String| {
        let bytes = line.len() + 8;
        let fits = bytes <= space;
        space = space.saturating_sub(bytes);
        fits
    };
    let mut kept: Vec<_> = lines.iter().take_while(fits).cloned().collect();
    let others = lines.len() - kept.len();
    if others > 0 {
        kept.push(format!(
            "{others} more lines about processes that are not recorded did not fit --max-size"
        ));
    }
    kept
}

fn gap(process: u32, ring: u32, count: u64) -> Batch {
    let gap = Gap { reason: GapReason::NotStored, count };
    Batch::Cells { process, ring, cells: vec![gap.to_cell()] }
}

/// The length of the whole entries in the first `most` cells.
fn whole_entries(cells: &[Cell], most: usize) -> usize {
    let mut length = 0;
    while let Some(first) = cells.get(length) {
        let next = length + usize::from(first.cells()).max(1);
        if next > most {
            break;
        }
        length = next;
    }
    length
}

/// The most bytes that a batch takes in the file, however badly it compresses.
fn bytes_at_most(batch: &Batch) -> u64 {
    let bytes = match batch {
        // Columns of numbers take at most a quarter more than the numbers.
        Batch::Cells { cells, .. } => size_of_val(cells.as_slice()) * 5 / 4 + 1024,
        Batch::Definitions { records, .. } => {
            let bytes = records.iter().map(|record| record.text.len() + record.fields.len() * 10 + 64);
            bytes.sum::<usize>() * 5 / 4 + 1024
        }
        Batch::DeviceSamples(samples) => samples.samples.len() * size_of::<DeviceSample>() + 2048,
        _ => 1024,
    };
    bytes as u64
}

#[cfg(test)]
#[path = "bound_tests.rs"]
mod tests;
