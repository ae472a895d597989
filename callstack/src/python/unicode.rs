//! Copies a Python string as UTF-8.
//!
//! Only compact strings are read: ASCII, and one, two or four bytes a letter. Names and files of code
//! objects are never anything else. A letter that represents an invalid UTF-8 byte (file names may contain
//! such) becomes that byte again; what else is no Unicode character becomes U+FFFD.

use super::layout::Layout;
use super::memory::Memory;

/// No name and no path is longer.
const LENGTH_MAX: u64 = 1 << 24;

/// Writes as much of the string at `text` to `into` as fits, whole letters only. Returns the number of
/// bytes. `None` if there is no readable string.
pub fn read<M: Memory>(memory: &M, layout: &Layout, text: u64, into: &mut [u8]) -> Option<usize> {
    if !memory.may_hold(text) {
        return None;
    }
    let length = memory.word(text, layout.text_length.into()).filter(|length| *length < LENGTH_MAX)?;
    let state = memory.half(text, layout.text_state.into())? >> layout.text_kind_shift;
    let (kind, is_compact, is_ascii) = (state & 7, state >> 3 & 1 == 1, state >> 4 & 1 == 1);
    if !is_compact || !matches!(kind, 1 | 2 | 4) || is_ascii && kind != 1 {
        return None;
    }
    let letters = u64::from(if is_ascii { layout.text_ascii } else { layout.text_compact });
    let letter = |index: u64| -> Option<u32> {
        let mut bytes = [0u8; 4];
        if !memory.read(text, letters + index * u64::from(kind), bytes.get_mut(..kind as usize)?) {
            return None;
        }
        Some(u32::from_le_bytes(bytes))
    };
    // Every string ends with a letter 0; an object without it is not a string.
    if letter(length)? != 0 {
        return None;
    }
    if is_ascii {
        // Nearly every string: its bytes are what is asked for.
        let count = into.len().min(usize::try_from(length).ok()?);
        let begin = into.get_mut(..count)?;
        if !memory.read(text, letters, begin) {
            return None;
        }
        if begin.is_ascii() {
            return Some(count);
        }
    }
    let mut written = 0;
    for index in 0..length {
        let mut utf8 = [0; 4];
        let utf8 = encode(letter(index)?, &mut utf8);
        let Some(room) = into.get_mut(written..written + utf8.len()) else { break };
        room.copy_from_slice(utf8);
        written += utf8.len();
    }
    Some(written)
}

fn encode(letter: u32, room: &mut [u8; 4]) -> &[u8] {
    match (letter, char::from_u32(letter)) {
        (_, Some(letter)) => letter.encode_utf8(room).as_bytes(),
        (0xdc80..=0xdcff, None) => {
            *room = [letter as u8, 0, 0, 0];
            room.get(..1).unwrap_or_default()
        }
        (_, None) => char::REPLACEMENT_CHARACTER.encode_utf8(room).as_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::memory::ProcessImage;

    const START: u64 = 0x10_0000;

    fn string(layout: &Layout, letters: &[u32], kind: u32, ascii: bool) -> Vec<u8> {
        let mut bytes = vec![0; usize::from(if ascii { layout.text_ascii } else { layout.text_compact })];
        let length = usize::from(layout.text_length);
        bytes[length..length + 8].copy_from_slice(&(letters.len() as u64).to_le_bytes());
        let state = (kind | 1 << 3 | u32::from(ascii) << 4) << layout.text_kind_shift;
        let at = usize::from(layout.text_state);
        bytes[at..at + 4].copy_from_slice(&state.to_le_bytes());
        for letter in letters.iter().chain([&0]) {
            bytes.extend_from_slice(&letter.to_le_bytes()[..kind as usize]);
        }
        bytes
    }

    fn read_back(layout: &Layout, bytes: &[u8], room: usize) -> Option<Vec<u8>> {
        let mut into = vec![0; room];
        let written = read(&ProcessImage { start: START, bytes }, layout, START, &mut into)?;
        into.truncate(written);
        Some(into)
    }

    #[test]
    fn strings_of_all_kinds_are_read() {
        for minor in 8..=12 {
            let layout = Layout::of_minor(minor).unwrap();
            for (text, kind, ascii) in [
                ("", 1, true),
                ("Linear.forward", 1, true),
                ("naïve", 1, false),
                ("кернел", 2, false),
                ("a😀b", 4, false),
            ] {
                let letters: Vec<u32> = text.chars().map(u32::from).collect();
                let bytes = string(&layout, &letters, kind, ascii);
                assert_eq!(read_back(&layout, &bytes, 100).unwrap(), text.as_bytes(), "3.{minor} {text}");
            }
        }
    }

    #[test]
    fn letters_that_are_none_are_kept_as_what_they_stand_for() {
        let layout = Layout::of_minor(12).unwrap();
        let bytes = string(&layout, &[0x61, 0xdcff, 0xdc80, 0xd800, 0xdfff], 2, false);
        assert_eq!(read_back(&layout, &bytes, 100).unwrap(), b"a\xff\x80\xef\xbf\xbd\xef\xbf\xbd");
        let bytes = string(&layout, &[0x11_0000, 0x62], 4, false);
        assert_eq!(read_back(&layout, &bytes, 100).unwrap(), "\u{fffd}b".as_bytes());
    }

    #[test]
    fn long_strings_are_cut_between_letters() {
        let layout = Layout::of_minor(12).unwrap();
        let bytes = string(&layout, &[0x61, 0x20ac, 0x20ac], 2, false);
        assert_eq!(read_back(&layout, &bytes, 6).unwrap(), "a€".as_bytes());
        assert_eq!(read_back(&layout, &bytes, 0).unwrap(), b"");
    }

    #[test]
    fn ascii_strings_that_are_none_are_read_by_letters() {
        let layout = Layout::of_minor(12).unwrap();
        let bytes = string(&layout, &[0x61, 0xe9], 1, true);
        assert_eq!(read_back(&layout, &bytes, 100).unwrap(), "aé".as_bytes());
        let bytes = string(&layout, &[0x61, 0x62, 0x63], 1, true);
        assert_eq!(read_back(&layout, &bytes, 2).unwrap(), b"ab");
    }

    #[test]
    fn object_that_is_no_string_is_not_read() {
        let layout = Layout::of_minor(12).unwrap();
        let good = string(&layout, &[0x61, 0x62], 1, true);
        assert!(read_back(&layout, &good, 9).is_some());
        for (at, value) in [
            (usize::from(layout.text_state), 0u32),
            (usize::from(layout.text_state), (3 | 1 << 3) << layout.text_kind_shift),
            (usize::from(layout.text_state), (4 | 3 << 3) << layout.text_kind_shift),
            (usize::from(layout.text_state), 1 << layout.text_kind_shift),
            (usize::from(layout.text_length), 1),
            (usize::from(layout.text_length), 3),
            (usize::from(layout.text_length), u32::MAX),
        ] {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert_eq!(read_back(&layout, &bad, 9), None, "{at} {value}");
        }
        assert_eq!(read_back(&layout, &good[..good.len() - 1], 9), None);
    }
}
