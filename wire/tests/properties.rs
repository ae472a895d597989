//! Random honest use against a model, and random hostile memory against the readers.
#![cfg(not(loom))]

use gputrace_wire::VERSION;
use gputrace_wire::cell::{CELL_BYTES, CELL_WORDS, Cell};
use gputrace_wire::definition::{FIELDS_MAX, Look, TEXT_MAX, after_hole, look};
use gputrace_wire::handshake::{HEAD_BYTES, Head};
use gputrace_wire::ring::{Consumer, Damaged, Producer, Ring};
use gputrace_wire::segment::{
    self, CONTROL_OFFSET, COUNTER_SLOTS, COUNTERS_OFFSET, Layout, RINGS_MAX, RingHeader, SegmentHeader,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

struct TestRing {
    head: AtomicU64,
    tail: AtomicU64,
    words: Vec<AtomicU64>,
}

impl TestRing {
    /// Positions start anywhere: nothing may depend on a ring's first round.
    fn new(cells: usize, start: u64) -> TestRing {
        TestRing {
            head: AtomicU64::new(start),
            tail: AtomicU64::new(start),
            words: (0..cells * CELL_WORDS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.head, &self.tail, &self.words).unwrap()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push { cells: usize },
    HasRoom { cells: u64 },
    Read { limit: u64 },
    Release { at_most: usize },
    NewProducer,
    NewConsumer,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..6).prop_map(|cells| Step::Push { cells }),
        1 => (0u64..40).prop_map(|cells| Step::HasRoom { cells }),
        3 => prop_oneof![0u64..6, Just(u64::MAX)].prop_map(|limit| Step::Read { limit }),
        3 => (0usize..8).prop_map(|at_most| Step::Release { at_most }),
        1 => Just(Step::NewProducer),
        1 => Just(Step::NewConsumer),
    ]
}

/// A cell that is like no other: its words belong to its number.
fn numbered(number: u64) -> Cell {
    Cell(core::array::from_fn(|word| number * CELL_WORDS as u64 + word as u64))
}

proptest! {
    #[test]
    fn ring_is_a_bounded_queue(
        capacity in (0u32..6).prop_map(|bits| 1usize << bits),
        start in prop_oneof![Just(0u64), any::<u64>(), u64::MAX - 20..=u64::MAX],
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let memory = TestRing::new(capacity, start);
        let mut producer = Producer::new(memory.ring());
        let mut consumer = Consumer::new(memory.ring());
        // What is in the ring, oldest first, and how many of those were read and not released.
        let mut model = VecDeque::new();
        let mut read = 0;
        let mut next = 0;
        for step in steps {
            match step {
                Step::Push { cells } => {
                    let entry: Vec<_> = (next..).take(cells).map(numbered).collect();
                    let fits = model.len() + cells <= capacity;
                    prop_assert_eq!(producer.push(&entry), fits);
                    if fits {
                        model.extend(&entry);
                        next += cells as u64;
                    }
                }
                Step::HasRoom { cells } => {
                    prop_assert_eq!(producer.has_space(cells), model.len() as u64 + cells <= capacity as u64);
                }
                Step::Read { limit } => {
                    // Reading does not consume: it starts at the oldest cell not given back.
                    let mut seen = Vec::new();
                    let count = consumer.read(limit, |cell| seen.push(cell)).unwrap();
                    prop_assert_eq!(count, limit.min(model.len() as u64));
                    prop_assert_eq!(seen.len() as u64, count);
                    prop_assert!(seen.iter().eq(model.iter().take(seen.len())));
                    read = seen.len();
                }
                Step::Release { at_most } => {
                    let count = at_most.min(read);
                    consumer.release(count as u64);
                    model.drain(..count);
                    read -= count;
                }
                Step::NewProducer => producer = Producer::new(memory.ring()),
                Step::NewConsumer => {
                    consumer = Consumer::new(memory.ring());
                    read = 0;
                }
            }
            prop_assert_eq!(consumer.available(), Ok(model.len() as u64));
        }
    }

    #[test]
    fn reader_takes_at_most_a_ring_from_hostile_positions(
        capacity in (0u32..6).prop_map(|bits| 1usize << bits),
        [head, tail, later] in any::<[u64; 3]>(),
        distance in 0u64..80,
        near in any::<bool>(),
    ) {
        let memory = TestRing::new(capacity, tail);
        let mut consumer = Consumer::new(memory.ring());
        let head = if near { tail.wrapping_add(distance) } else { head };
        memory.head.store(head, Ordering::Relaxed);
        let mut taken = 0;
        match consumer.read(u64::MAX, |_| taken += 1) {
            Ok(count) => {
                prop_assert_eq!((taken, head.wrapping_sub(tail)), (count, count));
                prop_assert!(count <= capacity as u64);
                consumer.release(count);
            }
            Err(damaged) => {
                prop_assert_eq!(damaged, Damaged { head, tail });
                prop_assert_eq!(taken, 0);
            }
        }
        // And whatever is stored next: no panic, no more than a ring.
        memory.head.store(later, Ordering::Relaxed);
        memory.tail.store(head, Ordering::Relaxed);
        prop_assert!(consumer.read(u64::MAX, |_| ()).is_ok_and(|count| count <= capacity as u64) || consumer.available().is_err());
    }

    #[test]
    fn hostile_consumer_cannot_make_a_producer_write_outside(
        capacity in (0u32..6).prop_map(|bits| 1usize << bits),
        tails in prop::collection::vec(any::<u64>(), 1..20),
        cells in 0usize..70,
    ) {
        let memory = TestRing::new(capacity, 5);
        let mut producer = Producer::new(memory.ring());
        for tail in tails {
            memory.tail.store(tail, Ordering::Relaxed);
            let before = memory.head.load(Ordering::Relaxed);
            let fitted = producer.push(&vec![numbered(1); cells]);
            let moved = memory.head.load(Ordering::Relaxed) - before;
            prop_assert_eq!(moved, if fitted { cells as u64 } else { 0 });
            prop_assert!(!fitted || cells <= capacity);
        }
    }
}

/// Values that are likely to be on one side or the other of some check.
fn edge() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => prop::sample::select(vec![
            0, 1, 8, 63, 64, 65, 4096, 8128, 8192, 8193, 8256, 16384, u64::MAX, u64::MAX - 63, 1 << 63, 1 << 32,
        ]),
        1 => any::<u64>(),
        2 => (0u64..512).prop_map(|lines| lines * 64),
    ]
}

fn hostile_header() -> impl Strategy<Value = SegmentHeader> {
    let version = prop_oneof![4 => Just(VERSION), 1 => any::<u32>()];
    let count = prop_oneof![0u32..8, Just(RINGS_MAX), Just(RINGS_MAX + 1), any::<u32>()];
    let magic = prop_oneof![9 => Just(segment::MAGIC), 1 => any::<u64>()];
    (magic, version, 0u32..4, count, [edge(), edge(), edge(), edge()]).prop_map(
        |(magic, version, kind, count, [total, table, definitions, bytes])| {
            // SAFETY: a struct of atomics only; zeros are a value of each.
            let header: SegmentHeader = unsafe { std::mem::zeroed() };
            header.magic.store(magic, Ordering::Relaxed);
            header.version.store(version, Ordering::Relaxed);
            header.kind.store(kind, Ordering::Relaxed);
            header.total_bytes.store(total, Ordering::Relaxed);
            header.ring_table_offset.store(table, Ordering::Relaxed);
            header.ring_count.store(count, Ordering::Relaxed);
            header.definitions_offset.store(definitions, Ordering::Relaxed);
            header.definitions_bytes.store(bytes, Ordering::Relaxed);
            header
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn layout_that_passes_lies_inside_the_mapping(
        header in hostile_header(),
        mapped in prop_oneof![edge(), 8192u64..1 << 20].prop_map(|bytes| bytes as usize),
    ) {
        if let Ok(layout) = Layout::read(&header, mapped) {
            let inside = |offset: usize, bytes: usize| offset as u128 + bytes as u128 <= mapped as u128;
            prop_assert!(inside(CONTROL_OFFSET, 64));
            prop_assert!(inside(COUNTERS_OFFSET, COUNTER_SLOTS * 8));
            prop_assert!(inside(layout.ring_table_offset, layout.ring_count * size_of::<RingHeader>()));
            prop_assert!(inside(layout.definitions_offset, layout.definitions_bytes));
            prop_assert!(layout.ring_table_offset.is_multiple_of(align_of::<RingHeader>()));
            prop_assert!(layout.definitions_offset.is_multiple_of(align_of::<AtomicU64>()));
            prop_assert!(layout.ring_count <= RINGS_MAX as usize);
        }
    }

    #[test]
    fn ring_that_passes_lies_inside_the_mapping(offset in edge(), cells in prop_oneof![edge(), (0u32..64).prop_map(|bits| 1 << bits)], mapped in edge()) {
        // SAFETY: a struct of atomics only; zeros are a value of each.
        let ring: RingHeader = unsafe { std::mem::zeroed() };
        ring.data_offset.store(offset, Ordering::Relaxed);
        ring.capacity_cells.store(cells, Ordering::Relaxed);
        if let Some((offset, cells)) = Layout::ring_extent(&ring, mapped as usize) {
            prop_assert!(cells.is_power_of_two() && offset.is_multiple_of(CELL_BYTES));
            prop_assert!(offset as u128 + (cells * CELL_BYTES) as u128 <= mapped.into());
        }
    }

    #[test]
    fn hostile_words_are_looked_at_inside_the_area(
        // Most words pass for a record's first word or for its second, so that lengths matter.
        words in prop::collection::vec(
            prop_oneof![
                (0u64..3, 0u64..40).prop_map(|(kind, text)| kind | 0xdef1 << 16 | text << 32),
                (any::<u32>(), 0u64..8).prop_map(|(id, fields)| u64::from(id) | fields << 32),
                Just(0),
                any::<u64>(),
            ],
            0..64,
        ),
        at in prop_oneof![0usize..70, any::<usize>()],
    ) {
        let words: Vec<_> = words.into_iter().map(AtomicU64::new).collect();
        let mut here = Some(at);
        let mut looks = 0;
        while let Some(at) = here {
            looks += 1;
            prop_assert!(looks <= words.len() + 1, "no progress");
            here = match look(&words, at) {
                Look::Record(record) => {
                    prop_assert!(record.at == at && record.end() > at && record.end() <= words.len());
                    prop_assert!(record.field_count <= FIELDS_MAX && record.text_bytes <= TEXT_MAX);
                    prop_assert_eq!(record.text(&words).count(), record.text_bytes);
                    for index in [0, record.field_count, usize::MAX] {
                        let field = record.field(&words, index);
                        prop_assert!(index < record.field_count || field == 0);
                    }
                    Some(record.end())
                }
                Look::Nothing => {
                    let next = after_hole(&words, at);
                    prop_assert!(next.is_none_or(|next| next > at && next < words.len()));
                    next
                }
                Look::Damaged => None,
            };
        }
    }

    #[test]
    fn message_is_its_head_and_its_text(packet in prop::collection::vec(any::<u8>(), 0..200), text_bytes in 0u32..200, honest: bool) {
        let mut packet = packet;
        if honest && packet.len() >= HEAD_BYTES {
            let head = Head { text_bytes, ..Head::new(1, 2, 3, 4) };
            packet[..HEAD_BYTES].copy_from_slice(&head.to_bytes());
        }
        if let Ok((head, text)) = Head::parse(&packet) {
            prop_assert_eq!(&packet[..HEAD_BYTES], &head.to_bytes()[..]);
            prop_assert_eq!(text, &packet[HEAD_BYTES..HEAD_BYTES + head.text_bytes as usize]);
        } else {
            prop_assert!(!honest || packet.len() < HEAD_BYTES + text_bytes as usize);
        }
    }
}
