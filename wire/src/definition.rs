//! Definitions: names, functions, threads, devices… said once, referred to by 32-bit ids.
//!
//! The area is append-only and bounded. A record, in 64-bit words:
//!
//! ```text
//!  word 0   kind u16 │ magic u16 │ text bytes u32      stored last, with Release
//!  word 1   id u32   │ field count u32
//!  word 2…  fields, one word each, by index
//!  then     text, zero-padded to a whole word
//! ```
//!
//! Definitions are never dropped while they fit and never rewritten. An id is never reused: a
//! handle that is destroyed and made again is defined again. A reader asks for fields by index
//! and gets 0 for one that the writer did not know, so kinds grow at the end.
//!
//! Any thread appends: it reserves words by compare-exchange, marks them pending by a word 0 of
//! kind 0 that says how many they are, fills them, and stores word 0 again. A thread killed in
//! between leaves a hole. A reader waits there while the process lives; when it is dead,
//! [`after_hole`] passes it without guessing: a hole either says its length or is all zeros.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use core::sync::atomic::compiler_fence;

/// In word 0 of every record: tells a record from a word that is none.
pub const MAGIC: u16 = 0xdef1;
/// The longest text kept; longer ones are cut by the writer.
pub const TEXT_MAX: usize = 16 * 1024;
/// The most fields a record has (stacks have two a frame).
pub const FIELDS_MAX: usize = 1024;

/// Kinds, each with the meaning of its fields by index. 0 is no kind: it marks a pending record.
pub mod kind {
    pub const API: u16 = 1;
    pub const NAME: u16 = 2;
    pub const FUNCTION: u16 = 3;
    pub const MODULE: u16 = 4;
    pub const THREAD: u16 = 5;
    pub const CONTEXT: u16 = 6;
    pub const STREAM: u16 = 7;
    pub const DEVICE: u16 = 8;
    pub const GRAPH: u16 = 9;
    pub const STACK: u16 = 10;
    pub const PROCESS: u16 = 11;
    pub const LIBRARY: u16 = 12;
    pub const NOTICE: u16 = 13;
}

/// Text: the symbol.
pub mod api {}

/// Text: the name as the device library says it (mangled for C++).
pub mod name {}

/// Text: the name, if it was not defined apart.
pub mod function {
    pub const HANDLE: usize = 0;
    pub const NAME: usize = 1;
    pub const MODULE: usize = 2;
    pub const REGISTERS: usize = 3;
    pub const STATIC_SHARED_BYTES: usize = 4;
    pub const LOCAL_BYTES_PER_THREAD: usize = 5;
    pub const MAX_THREADS_PER_BLOCK: usize = 6;
}

pub mod module {
    pub const HANDLE: usize = 0;
    /// 0 module, 1 library.
    pub const FORM: usize = 1;
}

/// Text: the thread's name.
pub mod thread {
    pub const TID: usize = 0;
    /// One of [`super::role`].
    pub const ROLE: usize = 1;
}

/// Who writes into a ring.
pub mod role {
    pub const PROGRAM: u64 = 0;
    pub const DEVICE_RECORDS: u64 = 1;
    pub const SERVICE: u64 = 2;
}

pub mod context {
    pub const HANDLE: usize = 0;
    /// Device definition.
    pub const DEVICE: usize = 1;
}

pub mod stream {
    pub const HANDLE: usize = 0;
    /// Context definition.
    pub const CONTEXT: usize = 1;
    pub const FLAGS: usize = 2;
    /// Two's complement.
    pub const PRIORITY: usize = 3;
    /// The vendor library's number for it, as device records name it; 0 if not asked.
    pub const RECORD_ID: usize = 4;
}

/// Text: the device's name.
pub mod device {
    pub const ORDINAL: usize = 0;
    pub const TOTAL_MEMORY_BYTES: usize = 1;
    pub const COMPUTE_MAJOR: usize = 2;
    pub const COMPUTE_MINOR: usize = 3;
    pub const MULTIPROCESSORS: usize = 4;
    pub const WARP_SIZE: usize = 5;
    pub const MAX_THREADS_PER_MULTIPROCESSOR: usize = 6;
    pub const MAX_BLOCKS_PER_MULTIPROCESSOR: usize = 7;
    pub const REGISTERS_PER_MULTIPROCESSOR: usize = 8;
    pub const REGISTERS_PER_BLOCK: usize = 9;
    pub const SHARED_BYTES_PER_MULTIPROCESSOR: usize = 10;
    pub const SHARED_BYTES_PER_BLOCK_OPTIN: usize = 11;
    pub const RESERVED_SHARED_BYTES_PER_BLOCK: usize = 12;
    pub const CLOCK_KHZ: usize = 13;
    pub const MEMORY_CLOCK_KHZ: usize = 14;
    pub const MEMORY_BUS_BITS: usize = 15;
    pub const L2_BYTES: usize = 16;
    pub const UUID_LOW: usize = 17;
    pub const UUID_HIGH: usize = 18;
    pub const PCI_DOMAIN: usize = 19;
    pub const PCI_BUS: usize = 20;
    pub const PCI_DEVICE: usize = 21;
    /// 1 where the device is a simulation.
    pub const SIMULATED: usize = 22;
    pub const MAX_THREADS_PER_BLOCK: usize = 23;
}

pub mod graph {
    pub const HANDLE: usize = 0;
    /// 0 graph, 1 executable graph.
    pub const FORM: usize = 1;
    /// Graph definition that this one was made from.
    pub const SOURCE: usize = 2;
}

/// Fields: frames, outermost first: two words each, (definition of the code, position in it).
pub mod stack {}

/// Text: the command line, arguments separated by NUL.
pub mod process {
    pub const PID: usize = 0;
    pub const PARENT_PID: usize = 1;
    pub const DRIVER_VERSION: usize = 2;
    /// 1 where the driver is a simulation.
    pub const SIMULATED: usize = 3;
}

/// Text: the path.
pub mod library {
    /// One of [`super::library_role`].
    pub const ROLE: usize = 0;
    pub const VERSION: usize = 1;
}

pub mod library_role {
    pub const DRIVER: u64 = 1;
    pub const DEVICE_RECORDS: u64 = 2;
}

/// Text: one line for the user.
pub mod notice {
    /// 0 information, 1 something works less well than asked.
    pub const SEVERITY: usize = 0;
    /// One of [`super::rung`], where the notice is a step down the ladder; else 0.
    pub const RUNG: usize = 1;
}

/// The rungs of the ladder of device times.
pub mod rung {
    pub const FULL: u64 = 1;
    pub const WINDOWS: u64 = 2;
    pub const HOOKS: u64 = 3;
}

/// The writing side's view of the area.
#[derive(Clone, Copy, Debug)]
pub struct Area<'a> {
    /// Words reserved so far.
    pub reserved: &'a AtomicU64,
    /// The next id to give out; starts at 1.
    pub next_id: &'a AtomicU32,
    pub words: &'a [AtomicU64],
}

impl Area<'_> {
    /// Appends a record and returns its id, or `None` when the area is full. Text past
    /// [`TEXT_MAX`] bytes and fields past [`FIELDS_MAX`] are cut. `kind` is not 0.
    pub fn append(&self, kind: u16, fields: &[u64], text: &[u8]) -> Option<u32> {
        let text = text.get(..TEXT_MAX).unwrap_or(text);
        let fields = fields.get(..FIELDS_MAX).unwrap_or(fields);
        let needed = (2 + fields.len() + text.len().div_ceil(8)) as u64;
        // Relaxed: the reservation only divides the words among writers; each record is
        // published by its own word 0.
        let first = self
            .reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| {
                at.checked_add(needed).filter(|end| *end <= self.words.len() as u64)
            })
            .ok()?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let record = self.words.get(first as usize..(first + needed) as usize)?;
        let (head, body) = record.split_first()?;
        let (identity, payload) = body.split_first()?;
        head.store(pending_word(needed), Ordering::Relaxed);
        // SYNC: pairs with no other thread, but with death: a kill leaves every store before it
        // in the program's order and none after. Were the payload's stores moved up, a hole could
        // have contents and no length, and `after_hole` would take contents for a record.
        compiler_fence(Ordering::Release);
        identity.store(u64::from(id) | (fields.len() as u64) << 32, Ordering::Relaxed);
        let words = fields.iter().copied().chain(text.chunks(8).map(word_of));
        for (to, word) in payload.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        // SYNC: pairs with the Acquire load of word 0 in `look`. Without it a reader could see
        // the record's length before its contents.
        head.store(head_word(kind, text.len()), Ordering::Release);
        Some(id)
    }
}

fn word_of(chunk: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(chunk) {
        *to = *from;
    }
    u64::from_le_bytes(bytes)
}

const fn head_word(kind: u16, text_bytes: usize) -> u64 {
    kind as u64 | (MAGIC as u64) << 16 | (text_bytes as u64) << 32
}

/// Word 0 of a record whose words are reserved and not yet written.
const fn pending_word(needed: u64) -> u64 {
    (MAGIC as u64) << 16 | needed << 32
}

/// A published record, as far as its two first words say; nothing of it is trusted yet but its
/// bounds, which were checked against the area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub kind: u16,
    pub id: u32,
    pub field_count: usize,
    pub text_bytes: usize,
    /// Word index of the record in the area.
    pub at: usize,
}

/// What stands at a position of the area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    Record(Record),
    /// Nothing published here (yet): unused words or a record that is being written.
    Nothing,
    /// A word that no writer of this format stores here.
    Damaged,
}

/// Looks at a position. The words may change while they are read: they are copied once.
pub fn look(words: &[AtomicU64], at: usize) -> Look {
    let Some(head) = words.get(at) else { return Look::Nothing };
    // SYNC: pairs with the Release store of word 0 in `Area::append`.
    let head = head.load(Ordering::Acquire);
    if head == 0 {
        return Look::Nothing;
    }
    if (head >> 16) as u16 != MAGIC {
        return Look::Damaged;
    }
    if head as u16 == 0 {
        return Look::Nothing;
    }
    let text_bytes = (head >> 32) as usize;
    if text_bytes > TEXT_MAX {
        return Look::Damaged;
    }
    let Some(identity) = words.get(at + 1) else { return Look::Damaged };
    let identity = identity.load(Ordering::Relaxed);
    let field_count = (identity >> 32) as usize;
    let record = Record { kind: head as u16, id: identity as u32, field_count, text_bytes, at };
    if field_count > FIELDS_MAX || record.end() > words.len() { Look::Damaged } else { Look::Record(record) }
}

/// For a process that is dead: where to look next after a position at which [`look`] found
/// `Nothing`. `None` if nothing more was published or the hole's length is nonsense. `words` are
/// the area up to what was reserved: words beyond were never touched and would cost memory.
pub fn after_hole(words: &[AtomicU64], at: usize) -> Option<usize> {
    let rest = words.get(at..)?;
    let (head, rest) = rest.split_first()?;
    // Relaxed: the writer is dead; whatever it stored is there.
    let head = head.load(Ordering::Relaxed);
    if head == 0 {
        // Nothing was stored in this hole, so the next word that is not 0 begins a record.
        let zeros = rest.iter().take_while(|word| word.load(Ordering::Relaxed) == 0).count();
        return (zeros < rest.len()).then_some(at + 1 + zeros);
    }
    let length = (head >> 32) as usize;
    (head as u32 == pending_word(0) as u32 && length >= 2 && length <= rest.len()).then_some(at + length)
}

impl Record {
    /// Words from the record's start to its end.
    pub fn len_words(&self) -> usize {
        2 + self.field_count + self.text_bytes.div_ceil(8)
    }

    /// Word index after the record.
    pub fn end(&self) -> usize {
        self.at + self.len_words()
    }

    /// The field of that index, 0 if the writer did not write it.
    pub fn field(&self, words: &[AtomicU64], index: usize) -> u64 {
        if index >= self.field_count {
            return 0;
        }
        words.get(self.at + 2 + index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// The text, byte by byte.
    pub fn text<'w>(&self, words: &'w [AtomicU64]) -> impl Iterator<Item = u8> + use<'w> {
        let first = self.at + 2 + self.field_count;
        let count = self.text_bytes;
        (0..count.div_ceil(8))
            .flat_map(move |w| {
                words.get(first + w).map_or(0, |word| word.load(Ordering::Relaxed)).to_le_bytes()
            })
            .take(count)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Memory {
        reserved: AtomicU64,
        next_id: AtomicU32,
        words: Vec<AtomicU64>,
    }

    fn memory(words: usize) -> Memory {
        Memory {
            reserved: AtomicU64::new(0),
            next_id: AtomicU32::new(1),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    impl Memory {
        fn area(&self) -> Area<'_> {
            Area { reserved: &self.reserved, next_id: &self.next_id, words: &self.words }
        }
        fn all(&self) -> Vec<(u16, u32, Vec<u64>, Vec<u8>)> {
            let mut at = 0;
            let mut out = Vec::new();
            while let Look::Record(record) = look(&self.words, at) {
                let fields = (0..record.field_count).map(|i| record.field(&self.words, i)).collect();
                out.push((record.kind, record.id, fields, record.text(&self.words).collect()));
                at = record.end();
            }
            out
        }
    }

    #[test]
    fn records_read_back_in_order() {
        let memory = memory(64);
        assert_eq!(memory.area().append(kind::NAME, &[], b"kernel_with_a_name"), Some(1));
        assert_eq!(memory.area().append(kind::FUNCTION, &[7, 1, 0], b""), Some(2));
        assert_eq!(
            memory.all(),
            [
                (kind::NAME, 1, vec![], b"kernel_with_a_name".to_vec()),
                (kind::FUNCTION, 2, vec![7, 1, 0], vec![]),
            ]
        );
    }

    #[test]
    fn a_full_area_refuses_and_keeps_what_it_has() {
        let memory = memory(8);
        assert!(memory.area().append(kind::NAME, &[], b"12345678").is_some());
        assert_eq!(memory.area().append(kind::NAME, &[], &[b'x'; 64]), None);
        assert!(memory.area().append(kind::NAME, &[], b"fits").is_some());
        assert_eq!(memory.all().len(), 2);
    }

    #[test]
    fn a_hole_hides_nothing_behind_it() {
        let memory = memory(64);
        // Killed after the reservation, and killed while the text was written.
        memory.reserved.fetch_add(4, Ordering::Relaxed);
        memory.area().append(kind::NAME, &[], b"first").unwrap();
        let at = memory.reserved.fetch_add(6, Ordering::Relaxed) as usize;
        memory.words[at].store(pending_word(6), Ordering::Relaxed);
        memory.words[at + 3].store(head_word(kind::NAME, 3), Ordering::Relaxed);
        memory.area().append(kind::NAME, &[], b"second").unwrap();
        let mut texts = Vec::new();
        let mut at = Some(0);
        while let Some(here) = at {
            at = match look(&memory.words, here) {
                Look::Record(record) => {
                    texts.push(record.text(&memory.words).collect::<Vec<_>>());
                    Some(record.end())
                }
                Look::Nothing => after_hole(&memory.words, here),
                Look::Damaged => panic!("damage at {here}"),
            };
        }
        assert_eq!(texts, [&b"first"[..], b"second"]);
    }

    #[test]
    fn long_text_is_cut() {
        let memory = memory(TEXT_MAX / 8 + 8);
        memory.area().append(kind::NAME, &[], &vec![b'n'; TEXT_MAX + 5]).unwrap();
        assert_eq!(memory.all()[0].3.len(), TEXT_MAX);
    }

    #[test]
    fn hostile_words_are_damage_not_a_crash() {
        for (head, identity) in [
            (head_word(2, TEXT_MAX + 1), 1),
            (head_word(2, 100), 1),
            (head_word(2, 0), u64::MAX),
            (0x1234, 0),
            (u64::MAX, u64::MAX),
        ] {
            let memory = memory(4);
            memory.words[0].store(head, Ordering::Relaxed);
            memory.words[1].store(identity, Ordering::Relaxed);
            assert_eq!(look(&memory.words, 0), Look::Damaged, "{head:x}");
        }
        assert_eq!(look(&memory(4).words, 99), Look::Nothing);
    }

    #[test]
    fn threads_append_without_losing_any() {
        let memory = memory(40_000);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let area = memory.area();
                scope.spawn(move || {
                    for value in 0..500 {
                        area.append(kind::FUNCTION, &[thread, value], b"abc").unwrap();
                    }
                });
            }
        });
        let all = memory.all();
        assert_eq!(all.len(), 2_000);
        let mut ids: Vec<_> = all.iter().map(|r| r.1).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(1..=2_000));
    }
}
