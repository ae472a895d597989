//! Model checking of the orderings: every interleaving and every allowed memory effect, within
//! bounds. Run by `scripts/check-loom`; cells have one word here and rings two cells, because
//! the number of interleavings grows with both and the argument about the orderings does not.
#![cfg(loom)]

use gputrace_wire::cell::Cell;
use gputrace_wire::definition::{Area, Look, look};
use gputrace_wire::ring::{Consumer, Producer, Ring};
use gputrace_wire::segment::ring_state;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;

/// A ring as it lies in shared memory.
struct SharedRing {
    state: AtomicU32,
    head: AtomicU64,
    tail: AtomicU64,
    words: Vec<AtomicU64>,
}

impl SharedRing {
    fn cells(count: usize) -> Arc<SharedRing> {
        Arc::new(SharedRing {
            state: AtomicU32::new(ring_state::FREE),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            words: (0..count).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.head, &self.tail, &self.words).unwrap()
    }

    /// Takes the ring over as a starting thread does, pushes one entry and gives it back. False
    /// if another thread had it, which then looks for another ring and does not wait.
    fn own_and_push(&self, cells: &[Cell]) -> bool {
        // Acquire: the positions and cells of the owner before come first.
        let taken = self.state.compare_exchange(
            ring_state::FREE,
            ring_state::OWNED,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if taken.is_err() {
            return false;
        }
        assert!(Producer::new(self.ring()).push(cells), "two cells fit a ring of two");
        // Release: this owner's positions and cells come before the next owner's.
        let given_back = self.state.compare_exchange(
            ring_state::OWNED,
            ring_state::FREE,
            Ordering::Release,
            Ordering::Relaxed,
        );
        assert!(given_back.is_ok(), "somebody else changed the state of an owned ring");
        true
    }
}

/// A consumer that also proves that nobody else may touch a slot while it is read.
struct Reader<'a> {
    consumer: Consumer<'a>,
    memory: &'a SharedRing,
    seen: Vec<u64>,
}

impl<'a> Reader<'a> {
    fn new(memory: &'a SharedRing) -> Self {
        Reader { consumer: Consumer::new(memory.ring()), memory, seen: Vec::new() }
    }

    /// Reads and releases up to `limit` cells.
    fn read(&mut self, limit: u64) -> u64 {
        let mut position = self.memory.tail.load(Ordering::Relaxed) as usize;
        let count = self.consumer.read(limit, |cell| {
            let slot = &self.memory.words[position % self.memory.words.len()];
            // The model never lets a load see a store of the future, which real processors may:
            // without this the pair of orderings on `tail` could be dropped unnoticed.
            // SAFETY: the claim under test. The model checker fails if a store to this slot is
            // not ordered before this load or if a later one is not ordered after it.
            let again = unsafe { slot.unsync_load() };
            assert_eq!(again, cell.0[0]);
            position += 1;
            self.seen.push(again);
        });
        let count = count.unwrap();
        self.consumer.release(count);
        count
    }
}

#[test]
fn cells_come_whole_and_in_order_across_the_wrap() {
    loom::model(|| {
        let memory = SharedRing::cells(2);
        let producing = memory.clone();
        let producer = thread::spawn(move || {
            let mut producer = Producer::new(producing.ring());
            // Three cells through two slots: the third needs the first one's slot back.
            for value in 1..=3 {
                while !producer.push(&[Cell([value])]) {
                    thread::yield_now();
                }
            }
        });
        let mut reader = Reader::new(&memory);
        while reader.seen.len() < 3 {
            if reader.read(u64::MAX) == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(reader.seen, [1, 2, 3]);
        producer.join().unwrap();
    });
}

#[test]
fn entry_of_two_cells_is_seen_whole_or_not_at_all() {
    loom::model(|| {
        let memory = SharedRing::cells(2);
        let producing = memory.clone();
        let producer = thread::spawn(move || {
            let mut producer = Producer::new(producing.ring());
            let first = producer.push(&[Cell([1]), Cell([2])]);
            let second = producer.push(&[Cell([3]), Cell([4])]);
            (first, second)
        });
        let mut reader = Reader::new(&memory);
        for _ in 0..2 {
            assert!(reader.read(u64::MAX).is_multiple_of(2), "half an entry was published");
        }
        let (first, second) = producer.join().unwrap();
        assert!(first, "an empty ring has room");
        reader.read(u64::MAX);
        assert_eq!(reader.seen, if second { vec![1, 2, 3, 4] } else { vec![1, 2] });
    });
}

#[test]
fn ring_changes_hands_without_losing_or_mixing_cells() {
    loom::model(|| {
        let memory = SharedRing::cells(2);
        let owning = memory.clone();
        let other = thread::spawn(move || owning.own_and_push(&[Cell([10])]));
        let consuming = memory.clone();
        let consumer = thread::spawn(move || {
            let mut reader = Reader::new(&consuming);
            reader.read(u64::MAX);
            reader.seen
        });
        let mine = memory.own_and_push(&[Cell([20])]);
        let theirs = other.join().unwrap();
        assert!(mine || theirs, "one of two always finds the ring free");
        let mut seen = consumer.join().unwrap();
        let mut reader = Reader::new(&memory);
        reader.read(u64::MAX);
        seen.append(&mut reader.seen);
        seen.sort_unstable();
        let expected: Vec<_> = [(theirs, 10), (mine, 20)].iter().filter(|o| o.0).map(|o| o.1).collect();
        assert_eq!(seen, expected);
    });
}

#[test]
fn new_consumer_continues_where_the_last_one_stopped() {
    loom::model(|| {
        let memory = SharedRing::cells(2);
        let producing = memory.clone();
        let producer = thread::spawn(move || {
            let mut producer = Producer::new(producing.ring());
            (1..=3).filter(|value| producer.push(&[Cell([*value])])).collect::<Vec<_>>()
        });
        let mut seen = Vec::new();
        for _ in 0..2 {
            let mut reader = Reader::new(&memory);
            reader.read(1);
            seen.append(&mut reader.seen);
        }
        let pushed = producer.join().unwrap();
        let mut reader = Reader::new(&memory);
        reader.read(u64::MAX);
        seen.append(&mut reader.seen);
        assert_eq!(seen, pushed);
    });
}

/// Waits until the first slot was given back, without an ordering of its own: as if something
/// outside the ring had said so. (Waiting also makes the model explore this order; its reduction
/// remembers only the last access to a word and would miss it.)
fn wait_for_the_first_release(memory: &SharedRing) {
    while memory.tail.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
}

#[test]
fn new_owner_reuses_only_slots_that_were_given_back() {
    loom::model(|| {
        let memory = SharedRing::cells(2);
        assert!(Producer::new(memory.ring()).push(&[Cell([1]), Cell([2])]));
        let consuming = memory.clone();
        let consumer = thread::spawn(move || {
            let mut reader = Reader::new(&consuming);
            reader.read(1);
            reader.seen
        });
        wait_for_the_first_release(&memory);
        // Made anew, so that it knows the slot from the stored tail and not from a full ring.
        assert!(Producer::new(memory.ring()).push(&[Cell([3])]));
        assert_eq!(consumer.join().unwrap(), [1]);
        let mut reader = Reader::new(&memory);
        reader.read(u64::MAX);
        assert_eq!(reader.seen, [2, 3]);
    });
}

#[test]
fn consumer_that_takes_over_frees_the_slots_of_the_last_one() {
    loom::model(|| {
        let memory = SharedRing::cells(2);
        let mut producer = Producer::new(memory.ring());
        assert!(producer.push(&[Cell([1]), Cell([2])]));
        let reading = memory.clone();
        let first = thread::spawn(move || {
            let mut reader = Reader::new(&reading);
            reader.read(1);
            reader.seen
        });
        wait_for_the_first_release(&memory);
        let mut reader = Reader::new(&memory);
        reader.read(1);
        assert_eq!(reader.seen, [2]);
        // Knows the slots from this consumer's release alone.
        assert!(producer.push(&[Cell([3]), Cell([4])]));
        assert_eq!(first.join().unwrap(), [1]);
        reader.read(u64::MAX);
        assert_eq!(reader.seen, [2, 3, 4]);
    });
}

#[test]
fn position_alone_orders_one_owner_after_the_other() {
    loom::model(|| {
        let memory = SharedRing::cells(2);
        let owning = memory.clone();
        let first = thread::spawn(move || assert!(Producer::new(owning.ring()).push(&[Cell([1])])));
        // As if the ring had changed hands without an ordering of its own.
        while memory.head.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        assert!(Producer::new(memory.ring()).push(&[Cell([2])]));
        let mut reader = Reader::new(&memory);
        reader.read(u64::MAX);
        assert_eq!(reader.seen, [1, 2]);
        first.join().unwrap();
    });
}

#[test]
fn free_cells_that_were_seen_can_be_used() {
    loom::model(|| {
        let memory = SharedRing::cells(2);
        let mut producer = Producer::new(memory.ring());
        assert!(producer.push(&[Cell([1]), Cell([2])]));
        let consuming = memory.clone();
        let consumer = thread::spawn(move || {
            let mut reader = Reader::new(&consuming);
            reader.read(1);
            reader.seen
        });
        while !producer.has_space(1) {
            thread::yield_now();
        }
        assert!(producer.push(&[Cell([3])]));
        assert_eq!(consumer.join().unwrap(), [1]);
    });
}

/// A definitions area as it lies in shared memory.
struct Definitions {
    reserved: AtomicU64,
    next_id: AtomicU32,
    words: Vec<AtomicU64>,
}

impl Definitions {
    fn words(count: usize) -> Arc<Definitions> {
        Arc::new(Definitions {
            reserved: AtomicU64::new(0),
            next_id: AtomicU32::new(1),
            words: (0..count).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    fn area(&self) -> Area<'_> {
        Area { reserved: &self.reserved, next_id: &self.next_id, words: &self.words }
    }

    /// (kind, id, field, text) of the records from the start to the first that is not published.
    fn published(&self) -> Vec<(u16, u32, u64, Vec<u8>)> {
        let mut at = 0;
        let mut records = Vec::new();
        loop {
            match look(&self.words, at) {
                Look::Record(record) => {
                    let text = record.text(&self.words).collect();
                    records.push((record.kind, record.id, record.field(&self.words, 0), text));
                    at = record.end();
                }
                Look::Nothing => return records,
                Look::Damaged => panic!("an honest writer's words read as damage"),
            }
        }
    }
}

#[test]
fn definition_is_seen_whole_or_not_at_all() {
    loom::model(|| {
        let definitions = Definitions::words(4);
        let writing = definitions.clone();
        let writer = thread::spawn(move || writing.area().append(3, &[77], b"name"));
        let early = definitions.published();
        if let Some(record) = early.first() {
            assert_eq!(*record, (3, 1, 77, b"name".to_vec()));
        }
        assert_eq!(writer.join().unwrap(), Some(1));
        assert_eq!(definitions.published(), [(3, 1, 77, b"name".to_vec())]);
    });
}

#[test]
fn two_writers_share_the_area_and_one_that_does_not_fit_harms_nothing() {
    loom::model(|| {
        // Seven words: two records of three words fit, a third does not.
        let definitions = Definitions::words(7);
        let writing = definitions.clone();
        let writer = thread::spawn(move || writing.area().append(1, &[5], b""));
        let mine = definitions.area().append(2, &[6], b"").unwrap();
        let theirs = writer.join().unwrap().unwrap();
        assert_eq!(definitions.area().append(1, &[7], b""), None);
        let mut records = definitions.published();
        records.sort_unstable();
        assert_eq!(records, [(1, theirs, 5, vec![]), (2, mine, 6, vec![])]);
    });
}
