//! Reading a process's definitions area from front to back, once.

use gputrace_wire::atomic::AtomicU64;
use gputrace_wire::definition::{Look, after_hole, kind, look};

use crate::batch::Definition;
use crate::command_line;

/// The most bytes of definitions in one batch.
const BATCH_BYTES: usize = 1 << 20;

/// Where reading stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AreaEnd {
    /// All that is published was read.
    All,
    /// The batch is full; there is more.
    More,
    /// A record is reserved and not yet published.
    Hole,
    /// The bytes are no record. The area is not read any further.
    Damaged,
}

#[derive(Debug, Default)]
pub struct AreaReader {
    at: usize,
    stopped: bool,
    /// Records that a thread was writing when its process died.
    pub holes: u64,
}

impl AreaReader {
    /// Appends the records that are published and not yet read. `dead`: the process writes no more, so that
    /// holes are skipped.
    pub fn read(&mut self, words: &[AtomicU64], dead: bool, out: &mut Vec<Definition>) -> AreaEnd {
        let mut bytes = 0;
        while !self.stopped && self.at < words.len() {
            if bytes >= BATCH_BYTES {
                return AreaEnd::More;
            }
            match look(words, self.at) {
                Look::Record(record) => {
                    let text: Vec<u8> = record.text(words).collect();
                    out.push(Definition {
                        kind: record.kind,
                        id: record.id,
                        fields: (0..record.field_count).map(|index| record.field(words, index)).collect(),
                        text: match record.kind {
                            kind::PROCESS => command_line::masked_bytes(&text),
                            kind::ORIGIN => command_line::masked_list(&text),
                            _ => text,
                        },
                    });
                    bytes += record.len_words() * 8;
                    self.at = record.end();
                }
                Look::Nothing if !dead => return AreaEnd::Hole,
                Look::Nothing => {
                    self.holes += 1;
                    match after_hole(words, self.at) {
                        Some(next) if next > self.at => self.at = next,
                        _ => self.at = words.len(),
                    }
                }
                Look::Damaged => {
                    self.stopped = true;
                    return AreaEnd::Damaged;
                }
            }
        }
        AreaEnd::All
    }
}
