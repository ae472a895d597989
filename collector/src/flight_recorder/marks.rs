//! Marks: entries that later entries depend on, such as the thread of a ring, epochs, clock anchors, and
//! gaps.

use std::collections::{BTreeMap, VecDeque};

use gputrace_wire::cell::{Cell, kind};
use gputrace_wire::clock::Anchor;
use gputrace_wire::clock::mark::EpochBegin;

use crate::batch::{Batch, Gap};

/// Anchors kept of one epoch; two determine the rate.
const ANCHORS_OF_EPOCH: usize = 2;
/// As many epochs as the model remembers.
const EPOCHS_MAX: usize = 64;
/// The most calls kept that created graph nodes.
const NODES_MAX: usize = 1 << 15;
/// The ring number of entries without a ring.
const NO_RING: u32 = u32::MAX;

/// The marks of one batch of a ring, or of all evicted batches of a process.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// The last of each ring: `THREAD_BEGIN`, `EPOCH_BEGIN`, and the thread's `CALLER`.
    rings: BTreeMap<u32, [Option<Cell>; 3]>,
    /// The first of each epoch, in order of arrival.
    epochs: Vec<Cell>,
    /// The latest of each epoch, in order of arrival.
    anchors: Vec<Cell>,
    /// By reason.
    gaps: Vec<Gap>,
    /// The calls that created graph nodes: a graph that was captured long ago may be launched now.
    nodes: VecDeque<Cell>,
}

impl Marks {
    /// Notes an entry, if it is a mark.
    pub fn take(&mut self, ring: u32, cell: &Cell) {
        match cell.kind() {
            kind::THREAD_BEGIN => {
                let [thread, _, caller] = self.rings.entry(ring).or_default();
                (*thread, *caller) = (Some(*cell), None);
            }
            kind::CALLER => self.rings.entry(ring).or_default()[2] = Some(*cell),
            kind::EPOCH_BEGIN => {
                self.rings.entry(ring).or_default()[1] = Some(*cell);
                self.take_epoch(cell);
            }
            kind::ANCHOR => self.take_anchor(cell),
            kind::GRAPH_NODE => self.take_node(cell),
            // A gap that is no loss marks where a collector took the ring over; without earlier entries it is
            // useless.
            kind::GAP => {
                let gap = Gap::from_cell(cell).filter(|gap| gap.loss().is_some());
                gap.into_iter().for_each(|gap| self.take_gap(gap));
            }
            _ => {}
        }
    }

    fn take_epoch(&mut self, cell: &Cell) {
        let epoch = EpochBegin::from_cell(cell).epoch;
        if self.epochs.iter().any(|known| EpochBegin::from_cell(known).epoch == epoch) {
            return;
        }
        if self.epochs.len() >= EPOCHS_MAX {
            self.epochs.remove(0);
        }
        self.epochs.push(*cell);
    }

    fn take_anchor(&mut self, cell: &Cell) {
        let epoch = Anchor::from_cell(cell).epoch;
        let same = |known: &Cell| Anchor::from_cell(known).epoch == epoch;
        if self.anchors.iter().filter(|known| same(known)).count() >= ANCHORS_OF_EPOCH
            && let Some(oldest) = self.anchors.iter().position(same)
        {
            self.anchors.remove(oldest);
        } else if self.anchors.len() >= EPOCHS_MAX * ANCHORS_OF_EPOCH {
            self.anchors.remove(0);
        }
        self.anchors.push(*cell);
    }

    fn take_node(&mut self, cell: &Cell) {
        if self.nodes.len() >= NODES_MAX {
            self.nodes.pop_front();
        }
        self.nodes.push_back(*cell);
    }

    fn take_gap(&mut self, gap: Gap) {
        match self.gaps.iter_mut().find(|known| known.reason == gap.reason) {
            Some(known) => known.count = known.count.saturating_add(gap.count),
            None => self.gaps.push(gap),
        }
    }

    /// Adds the marks of a later batch.
    pub fn absorb(&mut self, later: &Marks) {
        for (ring, [thread, epoch, caller]) in &later.rings {
            let known = self.rings.entry(*ring).or_default();
            let before = if thread.is_some() { None } else { known[2] };
            *known = [thread.or(known[0]), epoch.or(known[1]), caller.or(before)];
        }
        later.epochs.iter().for_each(|cell| self.take_epoch(cell));
        later.anchors.iter().for_each(|cell| self.take_anchor(cell));
        later.gaps.iter().for_each(|gap| self.take_gap(*gap));
        later.nodes.iter().for_each(|cell| self.take_node(cell));
    }

    /// Drops the gaps, which no later entry needs.
    pub fn forget_gaps(&mut self) {
        self.gaps.clear();
    }

    /// The bytes that the marks take in memory.
    pub fn bytes(&self) -> usize {
        let single = self.epochs.len() + self.anchors.len() + self.gaps.len() + self.nodes.len();
        (single + 4 * self.rings.len()) * size_of::<Cell>()
    }

    /// The marks as batches that precede the window's.
    pub fn batches(&self, process: u32) -> Vec<Batch> {
        let gaps = self.gaps.iter().map(Gap::to_cell);
        let single = self.epochs.iter().chain(&self.anchors).chain(&self.nodes);
        let common: Vec<Cell> = single.copied().chain(gaps).collect();
        let mut batches = Vec::new();
        if !common.is_empty() {
            batches.push(Batch::Cells { process, ring: NO_RING, cells: common });
        }
        for (ring, marks) in &self.rings {
            let cells = marks.iter().copied().flatten().collect();
            batches.push(Batch::Cells { process, ring: *ring, cells });
        }
        batches
    }
}

#[cfg(test)]
mod tests {
    use gputrace_wire::graph::NodesMade;

    use super::*;

    #[test]
    fn stacks_of_graph_nodes_are_remembered_up_to_a_bound() {
        let made = |node| NodesMade { stack: 5, ticks: 1, node, count: 1, child: 0 }.to_cell();
        let (mut before, mut later) = (Marks::default(), Marks::default());
        before.take(3, &made(1 << 32));
        (1..=NODES_MAX as u64).for_each(|index| later.take(3, &made(1 << 32 | index)));
        before.absorb(&later);
        let batches = before.batches(0);
        let [Batch::Cells { ring: NO_RING, cells, .. }] = &batches[..] else { panic!("{batches:?}") };
        assert_eq!((cells.len(), cells.first()), (NODES_MAX, Some(&made(1 << 32 | 1))));
        assert_eq!(before.bytes(), NODES_MAX * size_of::<Cell>());
    }
}
