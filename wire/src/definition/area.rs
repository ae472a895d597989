//! The definitions area: appending to it, and reading it without trusting it.
//!
//! The module above documents the record's layout and holes.

use super::{FIELDS_MAX, MAGIC, TEXT_MAX};
use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use core::sync::atomic::compiler_fence;

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
        // SYNC: pairs with no other thread, but with the process's death: a kill leaves every store before
        // it in program order and none after it. If the payload's stores could move up, a hole could have
        // contents and no length, and `after_hole` would take the contents for a record.
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

/// A published record as its first two words describe it. Only its bounds were checked against the area;
/// nothing else is trusted yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub kind: u16,
    pub id: u32,
    pub field_count: usize,
    pub text_bytes: usize,
    /// Word index of the record in the area.
    pub at: usize,
}

/// The content of a position of the area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    Record(Record),
    /// Nothing is published here yet: unused words, or a record that is being written.
    Nothing,
    /// A word that no writer of this format stores here.
    Damaged,
}

/// Reads a position. The words may change while they are read, so they are copied once.
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

/// Where to look next after a position at which [`look`] found `Nothing`, in a process that is dead. `None`
/// if nothing more was published or the hole's length is invalid. `words` is the area up to the reserved
/// end: words beyond were never touched, and reading them would cost memory.
pub fn after_hole(words: &[AtomicU64], at: usize) -> Option<usize> {
    let rest = words.get(at..)?;
    let (head, rest) = rest.split_first()?;
    // Relaxed: the writer is dead, so all its stores are visible.
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

    /// The field of that index; 0 if the writer did not write it.
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
    use crate::definition::kind;

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
    fn full_area_refuses_and_keeps_what_it_has() {
        let memory = memory(8);
        assert!(memory.area().append(kind::NAME, &[], b"12345678").is_some());
        assert_eq!(memory.area().append(kind::NAME, &[], &[b'x'; 64]), None);
        assert!(memory.area().append(kind::NAME, &[], b"fits").is_some());
        assert_eq!(memory.all().len(), 2);
    }

    #[test]
    fn hole_hides_nothing_behind_it() {
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
