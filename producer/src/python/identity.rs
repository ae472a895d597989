//! A code object told from another at the same address.
//!
//! A code object that is freed leaves its address to the next one. From 3.12 a code object has a number
//! that no other of its interpreter ever gets. Before that, what is shown of it is compared: its
//! name, its file, its first line and its line table, and besides where its own parts are. Where two
//! such objects agree in all of that, a stack shows the same for both.
//!
//! Of a line table longer than [`WORDS_MAX`] words so many are compared, spread evenly over it, so that two
//! objects that differ nowhere else are told apart but by chance. That bounds the cost.

use super::layout::{ABSENT, Layout};
use super::memory::Memory;
use super::walk::Damaged;

/// 128 bytes: nearly all line tables up to 3.10 are shorter.
const WORDS_MAX: u64 = 16;
/// A table of lines longer than this is none.
const BYTES_MAX: u64 = 1 << 30;

/// Mixes two words into one; both count in full.
#[inline(always)]
pub fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd1b5_4a32_d192_ed03);
    (product >> 64) as u64 ^ product as u64
}

/// A word that tells the code object from any other that was or will be at its address.
#[inline(always)]
pub fn of<M: Memory>(memory: &M, layout: &Layout, code: u64) -> Result<u64, Damaged> {
    if layout.code_version != ABSENT {
        let version = memory.half(code, layout.code_version.into()).ok_or(Damaged)?;
        let first_line = memory.half(code, layout.code_first_line.into()).ok_or(Damaged)?;
        // 0 once the interpreter has run out of numbers.
        if version != 0 {
            return Ok(u64::from(version) << 32 | u64::from(first_line));
        }
    }
    of_contents(memory, layout, code).ok_or(Damaged)
}

#[inline(never)]
fn of_contents<M: Memory>(memory: &M, layout: &Layout, code: u64) -> Option<u64> {
    let word = |offset: u16| memory.word(code, offset.into());
    let mut sum = Sum { sum: 0, factor: 0x9e37_79b9_7f4a_7c15 };
    sum.add(memory.half(code, layout.code_first_line.into())?.into());
    for part in layout.code_parts {
        sum.add(word(part)?);
    }
    for name in [word(layout.code_name)?, word(layout.code_file)?] {
        text(memory, layout, name, &mut sum)?;
    }
    let table = word(layout.code_table)?;
    sum.add(table);
    if !memory.may_hold(table) {
        return None;
    }
    let bytes = memory.word(table, layout.object_size.into()).filter(|bytes| *bytes < BYTES_MAX)?;
    sum.add(bytes);
    words(memory, table, layout.bytes_data.into(), bytes, &mut sum)?;
    Some(fold(sum.sum, sum.sum.rotate_left(32)))
}

/// Interned strings have their hash, and nearly all names are interned; of others the letters are
/// looked at.
fn text<M: Memory>(memory: &M, layout: &Layout, text: u64, sum: &mut Sum) -> Option<()> {
    if !memory.may_hold(text) {
        return None;
    }
    let hash = memory.word(text, layout.text_hash.into())?;
    let length = memory.word(text, layout.text_length.into()).filter(|length| *length < BYTES_MAX)?;
    sum.add(text);
    sum.add(hash);
    sum.add(length);
    if hash == u64::MAX {
        // As many bytes as letters: all of an ASCII string, the beginning of another.
        let state = memory.half(text, layout.text_state.into())?;
        let is_ascii = state >> (layout.text_kind_shift + 4) & 1 == 1;
        let at = if is_ascii { layout.text_ascii } else { layout.text_compact };
        words(memory, text, at.into(), length, sum)?;
    }
    Some(())
}

/// Adds what `bytes` bytes from there hold, or as many words of it as are looked at.
fn words<M: Memory>(memory: &M, base: u64, from: u64, bytes: u64, sum: &mut Sum) -> Option<()> {
    let count = bytes / 8;
    if count == 0 {
        for at in 0..bytes {
            sum.add(memory.byte(base, from + at)?.into());
        }
        return Some(());
    }
    if count <= WORDS_MAX {
        for at in 0..count {
            sum.add(memory.word(base, from + at * 8)?);
        }
    } else {
        for at in 0..WORDS_MAX {
            sum.add(memory.word(base, from + at * (count - 1) / (WORDS_MAX - 1) * 8)?);
        }
    }
    // The last word, whole; it may overlap the one before.
    sum.add(memory.word(base, from + bytes - 8)?);
    Some(())
}

/// A sum of words, each times an odd number of its own: a change of one word always shows, and no
/// multiplication waits for another.
struct Sum {
    sum: u64,
    factor: u64,
}

impl Sum {
    #[inline(always)]
    fn add(&mut self, word: u64) {
        self.sum = self.sum.wrapping_add(word.wrapping_mul(self.factor));
        // Even, so that the factors stay odd.
        self.factor = self.factor.wrapping_add(0xd6e8_feb8_6659_fd92);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::memory::Image;

    const START: u64 = 0x10_0000;
    const CODE: u64 = START + 0x100;
    const NAME: u64 = START + 0x300;
    const FILE: u64 = START + 0x400;
    const TABLE: u64 = START + 0x500;

    /// A code object with a name, a file and a line table of that many bytes.
    fn image(layout: &Layout, table_bytes: u64) -> Vec<u8> {
        let mut bytes = vec![0; 0x1000];
        let mut put = |at: u64, offset: u16, value: u64| {
            let from = (at - START) as usize + usize::from(offset);
            bytes[from..from + 8].copy_from_slice(&value.to_le_bytes());
        };
        put(CODE, layout.code_first_line, 22);
        put(CODE, layout.code_name, NAME);
        put(CODE, layout.code_file, FILE);
        put(CODE, layout.code_table, TABLE);
        put(NAME, layout.text_hash, 1234);
        put(NAME, layout.text_length, 7);
        put(FILE, layout.text_hash, u64::MAX);
        put(FILE, layout.text_length, 20);
        put(FILE, layout.text_state, 0b11001 << layout.text_kind_shift);
        put(TABLE, layout.object_size, table_bytes);
        bytes
    }

    fn of(layout: &Layout, bytes: &[u8]) -> u64 {
        super::of(&Image { start: START, bytes }, layout, CODE).unwrap()
    }

    #[test]
    fn whatever_a_stack_shows_tells_code_objects_apart() {
        for minor in 8..=11 {
            let layout = Layout::of_minor(minor).unwrap();
            let bytes = image(&layout, 60);
            let before = of(&layout, &bytes);
            let text = FILE + u64::from(layout.text_ascii);
            let table = TABLE + u64::from(layout.bytes_data);
            let places = (text..text + 20).chain(table..table + 60).chain([
                CODE + u64::from(layout.code_first_line),
                NAME + u64::from(layout.text_hash),
                NAME + u64::from(layout.text_length),
                CODE + u64::from(layout.code_parts[0]),
            ]);
            for place in places {
                let mut other = bytes.clone();
                other[(place - START) as usize] ^= 1;
                assert_ne!(of(&layout, &other), before, "3.{minor} {place:#x}");
            }
            // Past the end of either nothing counts.
            for place in [text + 21, table + 60] {
                let mut other = bytes.clone();
                other[(place - START) as usize] ^= 1;
                assert_eq!(of(&layout, &other), before, "3.{minor} {place:#x}");
            }
        }
    }

    #[test]
    fn a_number_of_its_own_is_enough() {
        let layout = Layout::of_minor(12).unwrap();
        let mut bytes = image(&layout, 60);
        let at = (CODE - START) as usize + usize::from(layout.code_version);
        let without = of(&layout, &bytes);
        bytes[at] = 1;
        let first = of(&layout, &bytes);
        bytes[at] = 2;
        assert_ne!(of(&layout, &bytes), first);
        assert_ne!(first, without);
    }

    #[test]
    fn what_cannot_be_there_is_damage() {
        let layout = Layout::of_minor(11).unwrap();
        for (at, offset) in [(CODE, layout.code_name), (CODE, layout.code_file), (CODE, layout.code_table)] {
            for bad in [0, START + 1, START + 0x2000, u64::MAX - 7] {
                let mut bytes = image(&layout, 60);
                let from = (at - START) as usize + usize::from(offset);
                bytes[from..from + 8].copy_from_slice(&bad.to_le_bytes());
                let memory = Image { start: START, bytes: &bytes };
                assert_eq!(super::of(&memory, &layout, CODE), Err(Damaged), "{bad:#x}");
            }
        }
        let bytes = image(&layout, u64::MAX);
        assert_eq!(super::of(&Image { start: START, bytes: &bytes }, &layout, CODE), Err(Damaged));
    }
}
