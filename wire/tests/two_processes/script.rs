//! What the child writes and how the parent checks that it is that and nothing else.

use crate::segment::Segment;
use gputrace_wire::cell::{CELL_WORDS, Cell, kind};
use gputrace_wire::definition::{self, Look, Record, after_hole, look};
use gputrace_wire::ring::{Consumer, Producer};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// The child's orders.
#[derive(Clone, Copy)]
pub struct Entries {
    pub count: u64,
    pub entries_per_definition: u64,
    /// So that a parent on the same core gets a turn.
    pub yield_every: u64,
}

/// One to three cells.
fn cells_of(sequence: u64) -> usize {
    (sequence % 3) as usize + 1
}

/// A word that belongs to one place in one entry only.
fn word(sequence: u64, index: usize) -> u64 {
    (sequence * 32 + index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The entry's header and definition stand in word 0, its sequence number in word 1.
fn entry(sequence: u64, definition: u32) -> [Cell; 3] {
    let mut cells = [Cell::ZERO; 3];
    for (index, to) in cells.iter_mut().flat_map(|cell| &mut cell.0).enumerate() {
        *to = word(sequence, index);
    }
    cells[0].0[0] = Cell::new(kind::CALL, cells_of(sequence) as u8, 0).0[0];
    cells[0].put_u32(4, definition);
    cells[0].put_u64(8, sequence);
    cells
}

fn text_of(sequence: u64) -> [u8; 24] {
    let mut text = [0; 24];
    for (index, chunk) in text.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&word(sequence, 100 + index).to_le_bytes());
    }
    text
}

impl Entries {
    /// Writes everything. Runs in a forked child: no allocation, no lock, no panic.
    pub fn write(self, segment: &Segment) {
        let mut producer = Producer::new(segment.ring());
        let definitions = segment.definitions();
        let ring = segment.ring_header();
        let mut definition = 0;
        for sequence in 0..self.count {
            if sequence % self.entries_per_definition == 0 {
                let text = text_of(sequence);
                definition = definitions.append(definition::kind::NAME, &[sequence], &text).unwrap_or(0);
            }
            let cells = entry(sequence, definition);
            let counter = match producer.push(&cells[..cells_of(sequence)]) {
                true => &ring.written,
                false => &ring.dropped,
            };
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            if sequence % self.yield_every == self.yield_every - 1 {
                // SAFETY: has no conditions.
                unsafe { libc::sched_yield() };
            }
        }
    }
}

/// What the parent has read.
#[derive(Default, Debug)]
pub struct Reading {
    pub entries: u64,
    /// Entries left out between those that came.
    pub missing: u64,
    pub next_sequence: u64,
    /// The definitions by id: the sequence number in their field.
    pub definitions: BTreeMap<u32, u64>,
    /// Word index of the definition to look at next.
    definitions_at: usize,
    pub holes: u32,
    /// Cells of an entry that is not complete yet.
    pending: Vec<Cell>,
}

impl Reading {
    /// Reads, checks and releases up to `limit` cells; returns how many.
    pub fn drain(&mut self, segment: &Segment, consumer: &mut Consumer<'_>, limit: u64) -> u64 {
        let mut cells = Vec::new();
        let count = consumer.read(limit, |cell| cells.push(cell)).unwrap();
        consumer.release(count);
        assert_eq!(cells.len() as u64, count);
        // After the cells: what they refer to was published before them.
        self.read_definitions(segment);
        for cell in cells {
            self.pending.push(cell);
            if self.pending.len() == usize::from(self.pending[0].cells()) {
                self.check_entry();
            }
        }
        count
    }

    fn check_entry(&mut self) {
        let sequence = self.pending[0].u64_at(8);
        let definition = self.pending[0].u32_at(4);
        assert!(sequence >= self.next_sequence, "{sequence} came twice or late");
        let expected = entry(sequence, definition);
        assert_eq!(self.pending, expected[..cells_of(sequence)], "entry {sequence} is torn");
        if definition != 0 {
            let defined = self.definitions.get(&definition).copied();
            assert!(
                defined.is_some_and(|at| at <= sequence),
                "{sequence} refers to {definition}: {defined:?}"
            );
        }
        self.missing += sequence - self.next_sequence;
        self.next_sequence = sequence + 1;
        self.entries += 1;
        self.pending.clear();
    }

    fn read_definitions(&mut self, segment: &Segment) {
        let words = segment.definition_words();
        loop {
            match look(words, self.definitions_at) {
                Look::Record(record) => self.check_definition(segment, &record),
                Look::Nothing => break,
                Look::Damaged => panic!("damage at word {}", self.definitions_at),
            }
        }
    }

    fn check_definition(&mut self, segment: &Segment, record: &Record) {
        let words = segment.definition_words();
        assert_eq!((record.kind, record.field_count), (definition::kind::NAME, 1));
        let sequence = record.field(words, 0);
        assert!(record.text(words).eq(text_of(sequence)), "definition {} is torn", record.id);
        assert_eq!(self.definitions.insert(record.id, sequence), None, "{} came twice", record.id);
        self.definitions_at = record.end();
    }

    /// Reads on behind holes, which only the dead leave. Everything must have been seen whole.
    pub fn read_definitions_of_the_dead(&mut self, segment: &Segment) {
        let words = segment.definition_words();
        self.read_definitions(segment);
        while let Some(next) = after_hole(words, self.definitions_at) {
            self.holes += 1;
            self.definitions_at = next;
            self.read_definitions(segment);
        }
        assert!(self.pending.is_empty(), "half an entry was published");
        let reserved = segment.header().definitions_reserved.load(Ordering::Relaxed);
        let unpublished = reserved - self.definitions_at as u64;
        assert!(unpublished <= (2 + 1 + CELL_WORDS / 2) as u64, "{unpublished} words reserved and not seen");
    }
}
