//! Memory of any bytes, read as an interpreter's: nothing panics, and everything ends.

use gputrace_wire::definition::{FIELDS_MAX, TEXT_MAX};

use super::code::{self, Define};
use super::identity::{self, Known};
use super::layout::Layout;
use super::memory::ProcessImage;
use super::objects::Objects;
use super::walk::{ChainEnd, FRAMES_MAX, Types, frames, position};
use super::{callers, check, stacks, tree};

const START: u64 = 0x10_0000;
const WORDS: usize = 192;

struct LengthCheck;

impl Define for LengthCheck {
    fn define(&self, _: u16, fields: &[u64], text: &[u8]) -> u32 {
        assert!(fields.len() <= FIELDS_MAX && text.len() <= TEXT_MAX);
        1
    }
}

/// A generator of numbers, so that a failure comes again.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Mostly pointers into the image, small numbers and zeros.
    fn word(&mut self) -> u64 {
        let number = self.next();
        match number >> 60 {
            0..=8 => START + (number & 0xff) * 8 % (WORDS as u64 * 8),
            9..=11 => number & 0x7f,
            12 => u64::MAX,
            13 => number,
            _ => 0,
        }
    }
}

/// The result of `compute`, once two calls in a row agree. The counts of ended code objects are global: a
/// test on another thread may begin to count or raise a count between two calls, so several are made.
fn the_same_twice<T: PartialEq>(compute: impl Fn() -> T) -> T {
    let mut last = compute();
    for _ in 0..8 {
        let next = compute();
        if next == last {
            return next;
        }
        last = next;
    }
    panic!("no two computations in a row were the same");
}

#[test]
fn any_memory_is_walked_to_an_end() {
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    let mut walked = 0u32;
    for round in 0..30_000 {
        let bytes: Vec<u8> = (0..WORDS).flat_map(|_| numbers.word().to_le_bytes()).collect();
        let memory = ProcessImage { start: START, bytes: &bytes };
        let layout = Layout::of_minor(8 + (round % 5) as u8).unwrap();
        let types = Types::default();
        check::look(&memory, &layout, &types, START, 0);
        let _ = the_same_twice(|| stacks::hash(&memory, &layout, &types, START));
        let fingerprint = the_same_twice(|| stacks::fingerprint_of_links(&memory, &layout, START, 0));
        let (mut count, mut text) = (0, [0; TEXT_MAX]);
        let end = frames(&memory, &layout, &types, START, |frame| {
            count += 1;
            if count < 4 {
                let _ = identity::of(&memory, &layout, frame.code, &mut Known::default());
                assert!(position(&memory, &layout, &frame) <= 0xffff_ffff);
                code::define(&memory, &layout, &types, 0, frame.code, &mut text, &LengthCheck);
            }
            Ok(())
        });
        assert!(count <= FRAMES_MAX);
        // It goes on behind the frames that are kept, but not elsewhere.
        assert!(fingerprint.is_ok() || end != Ok(ChainEnd::Whole));
        walked += u32::from(end.is_ok() && count > 0);
    }
    assert!(walked > 100, "{walked} chains made sense");
}

#[test]
fn any_memory_is_searched_for_a_caller_to_an_end() {
    let mut numbers = Numbers(0x0fed_cba9_8765_4321);
    let mut answered = [0u32; 2];
    for round in 0..60_000u64 {
        let mut bytes: Vec<u8> = (0..WORDS).flat_map(|_| numbers.word().to_le_bytes()).collect();
        // Names of nodes, so that trees are entered.
        for (at, name) in [(800, "hamt_bitmap_node"), (832, "hamt_array_node"), (864, "hamt_collision_node")]
        {
            bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
            bytes[at + name.len()] = 0;
        }
        let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        for (of, name) in [(1000, 800), (1064, 832), (1128, 864)] {
            put(of + 24, START + name);
        }
        for object in (0..800).step_by(64) {
            put(object + 8, START + 1000 + numbers.next() % 3 * 64);
        }
        let layout = match round % 6 {
            minor @ 0..=4 => Layout::of_minor(8 + minor as u8).unwrap(),
            _ => Layout { minor: 14, ..Layout::of_minor(12).unwrap() },
        };
        let memory = || ProcessImage { start: START, bytes: &bytes };
        let read = callers::read_image(memory(), &layout, START + 1000, START + 64 * (round % 16));
        let objects = Objects::new(memory(), &layout, START + 1000);
        let found = tree::find(&objects, START, START + 64, numbers.next() as u32);
        let mut seen = 0;
        let all = tree::each(&objects, START, |_, _| {
            seen += 1;
            Ok(())
        });
        assert!(seen <= 64);
        answered[0] += u32::from(read.is_ok());
        answered[1] += u32::from(found.is_ok() && all.is_ok());
    }
    assert!(answered.iter().all(|count| *count > 100), "{answered:?}");
}
