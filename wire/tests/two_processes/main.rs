//! Two processes and one real segment: a child produces, the parent consumes, and the child is
//! killed wherever it happens to be. What loom shows for every order of few steps is shown here
//! for few orders of millions of steps, through the kernel's shared memory.
#![cfg(all(not(loom), target_os = "linux"))]

mod child;
mod script;
mod segment;

use child::Child;
use gputrace_wire::ring::Consumer;
use gputrace_wire::segment::state;
use script::{Entries, Reading};
use segment::Segment;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A child that never ends would hang the suite.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn millions_of_cells_arrive_once_whole_and_in_order() {
    const ENTRIES: u64 = 2_000_000;
    // Small, so that the ring wraps thousands of times and is sometimes full.
    let segment = Segment::create(1 << 10, 1 << 19);
    let script = Entries { count: ENTRIES, entries_per_definition: 64, yield_every: 256 };
    let mut child = Child::fork(&segment, script);

    let mut reading = Reading::default();
    let mut consumer = Consumer::new(segment.ring());
    let begin = Instant::now();
    for round in 0u64.. {
        assert!(begin.elapsed() < PATIENCE, "the child does not end");
        // Acquire: whoever sees the end sees everything before it.
        let ended = segment.header().state.load(Ordering::Acquire) == state::ENDED;
        let read = reading.drain(&segment, &mut consumer, round % 600 + 1);
        match round % 997 {
            0 => std::thread::sleep(Duration::from_micros(500)),
            // A restarted collector finds its place by what is stored.
            1 => consumer = Consumer::new(segment.ring()),
            _ if read == 0 => std::thread::yield_now(),
            _ => {}
        }
        if ended && read == 0 {
            break;
        }
    }
    child.wait_for_exit();

    let ring = segment.ring_header();
    let written = ring.written.load(Ordering::Relaxed);
    let dropped = ring.dropped.load(Ordering::Relaxed);
    assert_eq!(written + dropped, ENTRIES);
    assert_eq!(reading.entries, written);
    assert_eq!(reading.missing + (ENTRIES - reading.next_sequence), dropped);
    assert!(dropped > 0, "the ring was never full: the test did not see a drop");
    assert!(written > ENTRIES / 100, "hardly anything got through: the test saw little but drops");
    assert_eq!(reading.definitions.len() as u64, ENTRIES.div_ceil(64));
    assert_eq!(reading.holes, 0);
    eprintln!("{written} entries and {dropped} drops in {:?}", begin.elapsed());
}

/// A round of the killing: how the parent behaves until the child dies.
fn kill_after(pause: Duration, drained_meanwhile: bool) -> Reading {
    let segment = Segment::create(1 << 14, 1 << 16);
    let script = Entries { count: u64::MAX, entries_per_definition: 3, yield_every: u64::MAX };
    let child = Child::fork(&segment, script);
    let mut reading = Reading::default();
    let mut consumer = Consumer::new(segment.ring());
    let begin = Instant::now();
    while segment.ring_header().head.load(Ordering::Relaxed) == 0 {
        assert!(begin.elapsed() < PATIENCE, "the child does not begin");
        std::hint::spin_loop();
    }
    let begin = Instant::now();
    while begin.elapsed() < pause {
        if drained_meanwhile {
            reading.drain(&segment, &mut consumer, 1 << 12);
        }
    }
    child.kill();

    // Whatever a restarted collector would do: start at the stored tail and read to the head.
    let mut consumer = Consumer::new(segment.ring());
    reading.drain(&segment, &mut consumer, u64::MAX);
    assert_eq!(consumer.available(), Ok(0));
    reading.read_definitions_of_the_dead(&segment);

    let ring = segment.ring_header();
    let written = ring.written.load(Ordering::Relaxed);
    // Killed between the entry and its count, at worst.
    assert!(reading.entries == written || reading.entries == written + 1, "{reading:?}, {written} written");
    assert!(reading.missing <= ring.dropped.load(Ordering::Relaxed));
    assert!(reading.holes <= 1, "one thread leaves one hole at most");
    reading
}

#[test]
fn killed_process_leaves_what_it_published_and_nothing_else() {
    let mut pause_us = 7;
    let (mut entries, mut definitions, mut holes) = (0, 0, 0);
    for round in 0..300 {
        // Multiplication modulo a prime: pauses from 0 to 600 µs in no order.
        pause_us = pause_us * 211 % 601;
        let reading = kill_after(Duration::from_micros(pause_us), round % 2 == 0);
        entries += reading.entries;
        definitions += reading.definitions.len();
        holes += reading.holes;
    }
    assert!(entries > 300 && definitions > 100, "the children were killed before they did anything");
    eprintln!("{entries} entries, {definitions} definitions and {holes} holes of 300 killed processes");
}
