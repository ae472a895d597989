//! The ring: one producer thread, one consumer, cells between them, no lock.
//!
//! ```text
//!            tail (consumer writes)        head (producer writes)
//!              │                             │
//!   ──┬────┬───▼┬────┬────┬────┬────┬────┬───▼┬────┬──
//!     │free│ published, not yet read         │free│
//!   ──┴────┴────┴────┴────┴────┴────┴────┴────┴────┴──
//! ```
//!
//! Positions count cells since creation and never wrap (2^64 cells); the slot is the position
//! modulo the capacity, a power of two. `head - tail` is at most the capacity; a reader that
//! sees a larger difference has a hostile or damaged ring and stops reading it.
//!
//! A full ring drops the new entry, and its writer counts the loss: this module never waits.
//!
//! A ring outlives its thread. When a thread ends, the next new thread takes the ring over and
//! continues from its positions; a `THREAD_BEGIN` entry names the thread of the entries that follow.

use core::hint::cold_path;

use crate::atomic::{AtomicU64, Ordering};
use crate::cell::{CELL_WORDS, Cell};

/// What both sides need of a ring: its two positions and its slots.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
    slots: &'a [[AtomicU64; CELL_WORDS]],
}

/// Why a header describes no valid ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadCapacity;

impl<'a> Ring<'a> {
    /// `words` holds the slots, `CELL_WORDS` words each; the number of slots must be a power of two.
    pub fn new(
        head: &'a AtomicU64,
        tail: &'a AtomicU64,
        words: &'a [AtomicU64],
    ) -> Result<Self, BadCapacity> {
        let (slots, rest) = words.as_chunks();
        if !slots.len().is_power_of_two() || !rest.is_empty() {
            return Err(BadCapacity);
        }
        Ok(Ring { head, tail, slots })
    }

    #[inline(always)]
    pub fn capacity(&self) -> u64 {
        self.slots.len() as u64
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> Option<&'a [AtomicU64; CELL_WORDS]> {
        self.slots.get(position as usize & self.slots.len().wrapping_sub(1))
    }
}

/// The producing end. Its creator guarantees that no other thread produces into the ring.
#[derive(Debug)]
pub struct Producer<'a> {
    ring: Ring<'a>,
    /// The position of the next cell. Only this end writes `head`, so the copy is always in sync.
    head: u64,
    /// The consumer's position when last read. A stale value only makes the ring look fuller.
    tail: u64,
}

impl<'a> Producer<'a> {
    pub fn new(ring: Ring<'a>) -> Self {
        // SYNC: pairs with the Release store of `head` in `publish` by the ring's previous owner, so that
        // this owner's cells come after that owner's. (The hand-over of the ring itself is an
        // Acquire/Release pair on the ring's state; this load makes the position safe by itself.)
        let head = ring.head.load(Ordering::Acquire);
        // SYNC: pairs with the Release store of `tail` in `Consumer::give_back`, as in `fit`.
        let tail = ring.tail.load(Ordering::Acquire);
        Producer { ring, head, tail }
    }

    /// Publishes the cells as one entry, or returns false if they do not fit now.
    #[inline(always)]
    pub fn push(&mut self, cells: &[Cell]) -> bool {
        if !self.fit(cells.len() as u64) {
            return false;
        }
        self.write(cells);
        true
    }

    /// Whether so many cells fit now. Reads the consumer's position only if they would not by the last one.
    #[inline(always)]
    fn fit(&mut self, count: u64) -> bool {
        let space = |used: u64| self.ring.capacity().saturating_sub(used);
        if space(self.head.wrapping_sub(self.tail)) < count {
            cold_path();
            // SYNC: pairs with the Release store of `tail` in `Consumer::give_back`. Without it
            // the stores in `write` could overtake the consumer's loads of the old cells.
            self.tail = self.ring.tail.load(Ordering::Acquire);
            // A hostile consumer may have stored any value. A tail past head makes this wrap to a huge
            // number, and the entry is dropped; it can do no more harm here.
            return space(self.head.wrapping_sub(self.tail)) >= count;
        }
        true
    }

    /// Space for an entry of one cell, which is made only then; `None` if it does not fit now.
    #[inline(always)]
    pub fn space_for_one(&mut self) -> Option<SpaceForOne<'_, 'a>> {
        if !self.fit(1) {
            return None;
        }
        let slot = self.ring.slot(self.head)?;
        Some(SpaceForOne { producer: self, slot })
    }

    #[inline(always)]
    fn write(&mut self, cells: &[Cell]) {
        let mut position = self.head;
        for cell in cells {
            if let Some(slot) = self.ring.slot(position) {
                store(slot, cell);
            }
            position = position.wrapping_add(1);
        }
        self.publish(position);
    }

    /// Publishes the cells before a position.
    #[inline(always)]
    fn publish(&mut self, position: u64) {
        self.head = position;
        // SYNC: pairs with the Acquire load of `head` in `Consumer::available`. Without it the
        // consumer could see the new position before the cells' words.
        self.ring.head.store(position, Ordering::Release);
    }

    /// Where the next cell will be written to. Not to be read.
    #[inline(always)]
    pub fn next(&self) -> *const [AtomicU64; CELL_WORDS] {
        self.ring.slots.as_ptr().wrapping_add(self.head as usize & self.ring.slots.len().wrapping_sub(1))
    }

    /// Whether an entry of that many cells would fit now.
    pub fn has_space(&mut self, cells: u64) -> bool {
        // SYNC: pairs with the Release store of `tail` in `Consumer::give_back`, as in `fit`.
        self.tail = self.ring.tail.load(Ordering::Acquire);
        self.head.wrapping_sub(self.tail).saturating_add(cells) <= self.ring.capacity()
    }
}

/// Space in a ring that is sure to be there.
#[derive(Debug)]
pub struct SpaceForOne<'p, 'a> {
    producer: &'p mut Producer<'a>,
    slot: &'a [AtomicU64; CELL_WORDS],
}

impl SpaceForOne<'_, '_> {
    /// Publishes the cell as an entry.
    #[inline(always)]
    pub fn fill(self, cell: Cell) {
        store(self.slot, &cell);
        self.producer.publish(self.producer.head.wrapping_add(1));
    }
}

#[inline(always)]
fn store(slot: &[AtomicU64; CELL_WORDS], cell: &Cell) {
    for (to, word) in slot.iter().zip(cell.0) {
        // Relaxed: published by the Release store of `head` in `publish`.
        to.store(word, Ordering::Relaxed);
    }
}

/// The consuming end. Its creator guarantees that nobody else consumes from the ring.
///
/// It may read further before it gives slots back. Cells that were read and not yet stored are then still
/// there for a later consumer.
#[derive(Debug)]
pub struct Consumer<'a> {
    ring: Ring<'a>,
    /// The position of the next read.
    position: u64,
    /// The position up to which slots were given back; at most one capacity behind.
    tail: u64,
}

/// The producer's position is invalid: more cells published than the ring holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damaged {
    pub head: u64,
    pub tail: u64,
}

impl<'a> Consumer<'a> {
    /// Continues at the stored tail, so that a restarted collector finds its position.
    pub fn new(ring: Ring<'a>) -> Self {
        // SYNC: pairs with the Release store of `tail` by a consumer before this one, so that
        // its loads of the slots come before whatever this one does.
        let tail = ring.tail.load(Ordering::Acquire);
        Consumer { ring, position: tail, tail }
    }

    /// The position of the next read: cells since the ring was made.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How many cells were read and not given back.
    pub fn held(&self) -> u64 {
        self.position.wrapping_sub(self.tail)
    }

    /// How many cells can be read now.
    pub fn available(&self) -> Result<u64, Damaged> {
        // SYNC: pairs with the Release store of `head` in `Producer::publish`. The value is copied
        // once and only the copy is checked and used: the producer may store a new one at any time.
        let head = self.ring.head.load(Ordering::Acquire);
        let count = head.wrapping_sub(self.position);
        let all = head.wrapping_sub(self.tail);
        // A head between the two would make the first huge.
        let capacity = self.ring.capacity();
        if count > capacity || all > capacity { Err(Damaged { head, tail: self.tail }) } else { Ok(count) }
    }

    /// Gives copies of up to `limit` cells to `each`, in order, without giving their slots back or moving the
    /// position. Returns how many. The cells' contents are as hostile as their writer.
    pub fn read(&self, limit: u64, mut each: impl FnMut(Cell)) -> Result<u64, Damaged> {
        let count = self.available()?.min(limit);
        for offset in 0..count {
            let Some(slot) = self.ring.slot(self.position.wrapping_add(offset)) else { break };
            let mut cell = Cell::ZERO;
            for (word, from) in cell.0.iter_mut().zip(slot) {
                // Relaxed: ordered by the Acquire load of `head` in `available`.
                *word = from.load(Ordering::Relaxed);
            }
            each(cell);
        }
        Ok(count)
    }

    /// Goes on behind `count` cells, at most as many as the last `read` returned, and keeps their slots.
    pub fn take(&mut self, count: u64) {
        self.position = self.position.wrapping_add(count);
    }

    /// Gives the slots before a position back to the producer. One that is not held means nothing.
    pub fn give_back(&mut self, position: u64) {
        if position.wrapping_sub(self.tail) > self.held() {
            return;
        }
        self.tail = position;
        // SYNC: pairs with the Acquire load of `tail` in `Producer::fit`. Without it the
        // producer's stores into these slots could be seen by the loads in `read`.
        self.ring.tail.store(position, Ordering::Release);
    }

    /// Goes on behind `count` cells and gives back all that was read.
    pub fn release(&mut self, count: u64) {
        self.take(count);
        self.give_back(self.position);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Memory {
        head: AtomicU64,
        tail: AtomicU64,
        words: Vec<AtomicU64>,
    }

    impl Memory {
        fn cells(count: usize) -> Memory {
            Memory {
                head: AtomicU64::new(0),
                tail: AtomicU64::new(0),
                words: (0..count * CELL_WORDS).map(|_| AtomicU64::new(0)).collect(),
            }
        }
        fn ring(&self) -> Ring<'_> {
            Ring::new(&self.head, &self.tail, &self.words).unwrap()
        }
    }

    fn cell(value: u64) -> Cell {
        let mut cell = Cell::new(1, 1, 0);
        cell.put_u64(8, value);
        cell
    }

    #[test]
    fn entries_are_read_in_order_across_the_wrap() {
        let memory = Memory::cells(4);
        let mut producer = Producer::new(memory.ring());
        let mut consumer = Consumer::new(memory.ring());
        for round in 0..10 {
            assert!(producer.push(&[cell(round * 3), cell(round * 3 + 1), cell(round * 3 + 2)]));
            let mut seen = Vec::new();
            assert_eq!(consumer.read(u64::MAX, |c| seen.push(c.u64_at(8))), Ok(3));
            consumer.release(3);
            assert_eq!(seen, [round * 3, round * 3 + 1, round * 3 + 2]);
        }
    }

    #[test]
    fn held_cells_are_read_by_the_next_consumer() {
        let memory = Memory::cells(4);
        let mut producer = Producer::new(memory.ring());
        let mut consumer = Consumer::new(memory.ring());
        assert!(producer.push(&[cell(1)]) && producer.push(&[cell(2)]) && producer.push(&[cell(3)]));
        assert_eq!(consumer.read(2, |_| {}), Ok(2));
        consumer.take(2);
        assert_eq!((consumer.held(), consumer.available()), (2, Ok(1)));
        consumer.give_back(1);
        for senseless in [0, 3, u64::MAX] {
            consumer.give_back(senseless);
        }
        assert_eq!((consumer.held(), consumer.position()), (1, 2));
        assert!(producer.push(&[cell(4), cell(5)]), "what was given back is free");
        assert!(!producer.push(&[cell(6)]), "what is held is not");
        // A head behind what was read is no head.
        memory.head.store(1, Ordering::Release);
        assert!(consumer.available().is_err());
        memory.head.store(5, Ordering::Release);
        let mut seen = Vec::new();
        Consumer::new(memory.ring()).read(u64::MAX, |c| seen.push(c.u64_at(8))).unwrap();
        assert_eq!(seen, [2, 3, 4, 5]);
    }

    #[test]
    fn full_ring_drops_whole_entries_and_recovers() {
        let memory = Memory::cells(4);
        let mut producer = Producer::new(memory.ring());
        let mut consumer = Consumer::new(memory.ring());
        assert!(producer.push(&[cell(1), cell(2), cell(3)]));
        assert!(!producer.push(&[cell(4), cell(5)]));
        assert!(producer.push(&[cell(6)]));
        assert!(!producer.push(&[cell(7)]));
        let mut seen = Vec::new();
        consumer.read(u64::MAX, |c| seen.push(c.u64_at(8))).unwrap();
        consumer.release(4);
        assert_eq!(seen, [1, 2, 3, 6]);
        assert!(producer.push(&[cell(8), cell(9)]));
    }

    #[test]
    fn new_owner_continues_where_the_last_one_stopped() {
        let memory = Memory::cells(8);
        assert!(Producer::new(memory.ring()).push(&[cell(1)]));
        assert!(Producer::new(memory.ring()).push(&[cell(2)]));
        let mut seen = Vec::new();
        Consumer::new(memory.ring()).read(u64::MAX, |c| seen.push(c.u64_at(8))).unwrap();
        assert_eq!(seen, [1, 2]);
    }

    #[test]
    fn hostile_positions_are_refused_not_followed() {
        let memory = Memory::cells(4);
        let consumer = Consumer::new(memory.ring());
        for head in [5, u64::MAX, 1 << 63] {
            memory.head.store(head, Ordering::Release);
            assert_eq!(consumer.available(), Err(Damaged { head, tail: 0 }));
        }
        memory.head.store(0, Ordering::Release);
        let mut producer = Producer::new(memory.ring());
        for _ in 0..4 {
            assert!(producer.push(&[cell(0)]));
        }
        memory.tail.store(u64::MAX, Ordering::Release);
        assert!(!producer.push(&[cell(1)]), "a tail past head must look full, not empty");
    }

    #[test]
    fn odd_capacities_are_refused() {
        let memory = Memory::cells(3);
        assert_eq!(Ring::new(&memory.head, &memory.tail, &memory.words).err(), Some(BadCapacity));
        assert_eq!(Ring::new(&memory.head, &memory.tail, &[]).err(), Some(BadCapacity));
    }
}
