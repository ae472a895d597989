//! Distinguishes a code object from a later one at the same address.
//!
//! The address of a freed code object is reused. So each code object gets a number for its life
//! ([`super::lives`]). Without that number, the version that a code object has from 3.12 on is used: no
//! other code object of its interpreter ever gets it, though one of another interpreter may. Without
//! either, the contents are compared: name, file, first line and line table, and the addresses of its
//! parts. If two such objects agree in all of that, a stack shows the same for both.
//!
//! Of a line table longer than 64 bytes, eight words are compared, spread evenly over it; that bounds the
//! cost. Two objects that differ only between those words, with all their parts at the same addresses, are
//! taken for one.

use super::layout::{ABSENT, Layout};
use super::lives::Lives;
use super::memory::Memory;
use super::walk::Damaged;
use crate::fold::fold;

/// How many words of a line table, or of a string without a hash, are compared.
const WORDS: u64 = 8;
/// A longer line table is invalid.
const BYTES_MAX: u64 = 1 << 30;

/// What the frames of one stack share when their code objects are identified.
#[derive(Default)]
pub struct Known<'l> {
    /// The table of life numbers.
    pub lives: Option<&'l Lives>,
    /// The last file: successive frames often have the same one.
    file: u64,
    digest: u64,
}

impl Known<'_> {
    pub fn new(lives: Option<&Lives>) -> Known<'_> {
        Known { lives, file: 0, digest: 0 }
    }
}

/// A word that distinguishes the code object from any other, earlier or later, at its address.
#[inline(always)]
pub fn of<M: Memory>(memory: &M, layout: &Layout, code: u64, known: &mut Known) -> Result<u64, Damaged> {
    let number = match known.lives.map_or(0, |lives| lives.of(code)) {
        // 0 once the interpreter has run out of versions.
        0 if layout.code_version != ABSENT => memory.half(code, layout.code_version.into()).ok_or(Damaged)?,
        number => number,
    };
    if number == 0 {
        return of_contents(memory, layout, code, known).ok_or(Damaged);
    }
    let first_line = memory.half(code, layout.code_first_line.into()).ok_or(Damaged)?;
    Ok(u64::from(number) << 32 | u64::from(first_line))
}

#[inline(never)]
fn of_contents<M: Memory>(memory: &M, layout: &Layout, code: u64, known: &mut Known) -> Option<u64> {
    let word = |offset: u16| memory.word(code, offset.into());
    let first_line = memory.half(code, layout.code_first_line.into())?;
    let [first, second, third, fourth] = layout.code_parts;
    let parts = [word(first)?, word(second)?, word(third)?, word(fourth)?];
    let name = text(memory, layout, word(layout.code_name)?)?;
    let file = word(layout.code_file)?;
    if known.file != file || file == 0 {
        (known.file, known.digest) = (file, text(memory, layout, file)?);
    }
    let table = word(layout.code_table)?;
    if !memory.may_hold(table) {
        return None;
    }
    let bytes = memory.word(table, layout.object_size.into()).filter(|bytes| *bytes < BYTES_MAX)?;
    // None of these loads waits for another.
    let sum = fold(u64::from(first_line) << 32 ^ bytes, table)
        .wrapping_add(fold(parts[0] ^ parts[1].rotate_left(32), parts[2] ^ parts[3].rotate_left(32)))
        .wrapping_add(fold(name, known.digest.rotate_left(1)))
        .wrapping_add(words(memory, table, layout.bytes_data.into(), bytes)?);
    Some(fold(sum, code))
}

/// A word that distinguishes a string from another at its address. Interned strings have their hash, and
/// nearly all names are interned; for other strings the letters are read.
#[inline(always)]
fn text<M: Memory>(memory: &M, layout: &Layout, text: u64) -> Option<u64> {
    if !memory.may_hold(text) {
        return None;
    }
    let hash = memory.word(text, layout.text_hash.into())?;
    if hash == u64::MAX { letters(memory, layout, text) } else { Some(hash ^ text.rotate_left(32)) }
}

fn letters<M: Memory>(memory: &M, layout: &Layout, text: u64) -> Option<u64> {
    let length = memory.word(text, layout.text_length.into()).filter(|length| *length < BYTES_MAX)?;
    let state = memory.half(text, layout.text_state.into())?;
    let is_ascii = state >> (layout.text_kind_shift + 4) & 1 == 1;
    let at = if is_ascii { layout.text_ascii } else { layout.text_compact };
    // As many bytes as letters: all of an ASCII string, the beginning of any other.
    Some(words(memory, text, at.into(), length)? ^ fold(text, length))
}

/// Mixes these bytes; of more than 64, eight words from the first to the last.
#[inline(always)]
fn words<M: Memory>(memory: &M, base: u64, from: u64, bytes: u64) -> Option<u64> {
    let Some(last) = bytes.checked_sub(8) else { return few(memory, base, from, bytes) };
    // Without a branch: the words of short strings overlap.
    let step = (last << 16) / (WORDS - 1);
    let word = |index: u64| memory.word(base, from + ((index * step) >> 16));
    let sum = fold(word(0)?, word(1)?)
        .wrapping_add(fold(word(2)?, word(3)?).rotate_left(1))
        .wrapping_add(fold(word(4)?, word(5)?).rotate_left(2))
        .wrapping_add(fold(word(6)?, memory.word(base, from + last)?).rotate_left(3));
    Some(sum)
}

#[cold]
fn few<M: Memory>(memory: &M, base: u64, from: u64, bytes: u64) -> Option<u64> {
    (0..bytes).try_fold(bytes, |sum, at| Some(sum << 8 | u64::from(memory.byte(base, from + at)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::memory::ProcessImage;

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
        super::of(&ProcessImage { start: START, bytes }, layout, CODE, &mut Known::default()).unwrap()
    }

    #[test]
    fn code_objects_differ_if_any_shown_field_does() {
        for minor in 8..=11 {
            let layout = Layout::of_minor(minor).unwrap();
            let bytes = image(&layout, 60);
            let before = of(&layout, &bytes);
            let letters = FILE + u64::from(layout.text_ascii);
            let table = TABLE + u64::from(layout.bytes_data);
            let offsets = (letters..letters + 20).chain(table..table + 60).chain([
                CODE + u64::from(layout.code_first_line),
                NAME + u64::from(layout.text_hash),
                CODE + u64::from(layout.code_parts[0]),
            ]);
            for offset in offsets {
                let mut other = bytes.clone();
                other[(offset - START) as usize] ^= 1;
                assert_ne!(of(&layout, &other), before, "3.{minor} {offset:#x}");
            }
            // Bytes past the end of either have no effect.
            for offset in [letters + 21, table + 60] {
                let mut other = bytes.clone();
                other[(offset - START) as usize] ^= 1;
                assert_eq!(of(&layout, &other), before, "3.{minor} {offset:#x}");
            }
        }
    }

    #[test]
    fn unique_number_is_enough() {
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
    fn impossible_value_is_damage() {
        let layout = Layout::of_minor(11).unwrap();
        for (at, offset) in [(CODE, layout.code_name), (CODE, layout.code_file), (CODE, layout.code_table)] {
            for bad in [0, START + 1, START + 0x2000, u64::MAX - 7] {
                let mut bytes = image(&layout, 60);
                let from = (at - START) as usize + usize::from(offset);
                bytes[from..from + 8].copy_from_slice(&bad.to_le_bytes());
                let memory = ProcessImage { start: START, bytes: &bytes };
                assert_eq!(
                    super::of(&memory, &layout, CODE, &mut Known::default()),
                    Err(Damaged),
                    "{bad:#x}"
                );
            }
        }
        let bytes = image(&layout, u64::MAX);
        assert_eq!(
            super::of(&ProcessImage { start: START, bytes: &bytes }, &layout, CODE, &mut Known::default()),
            Err(Damaged)
        );
    }
}
