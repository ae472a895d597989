//! The table of offsets at the beginning of CPython's runtime from 3.13 on.

use super::{ABSENT, Layout, OffsetWords, table};
use crate::python::memory::Memory;

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// 3.14, whose table grew in the middle: two more words of the interpreter before the thread's, two
/// more of the frame, one more of the code, four of sets.
const WORDS_3_14: OffsetWords = OffsetWords {
    free_threaded: 2,
    thread_interp: 25,
    thread_frame: 26,
    thread_id: 27,
    frame_previous: 32,
    frame_code: 33,
    frame_instruction: 34,
    frame_owner: 36,
    code_file: 40,
    code_name: 42,
    code_table: 43,
    code_first_line: 44,
    code_start: 48,
    object_type: 51,
    object_size: 75,
    bytes_data: 76,
    text_state: 78,
    text_length: 79,
    text_ascii: 80,
};
/// And the words that only 3.14 has.
const FRAME_COPY_3_14: u16 = 38;
const CODE_COPIES_3_14: u16 = 49;

/// A structure's offsets are below this; a table with a larger one is invalid.
const FARTHEST: u64 = 4096;

/// The layout that the runtime at that address publishes, if its version is known.
pub fn read<M: Memory>(memory: &M, runtime: u64) -> Option<Layout> {
    if !memory.may_hold(runtime) || memory.word(runtime, 0)? != COOKIE {
        return None;
    }
    let version = memory.word(runtime, 8)?;
    if version >> 24 != 3 {
        return None;
    }
    let minor = (version >> 16) as u8;
    let (words, base) = match minor {
        13 => (table::WORDS_3_13, [table::V3_13, table::V3_13_FREE_THREADED]),
        14 => (WORDS_3_14, [table::V3_13, table::V3_13_FREE_THREADED]),
        _ => return None,
    };
    let at = |word: u16| -> Option<u16> {
        let offset = memory.word(runtime, u64::from(word) * 8).filter(|offset| *offset < FARTHEST)?;
        u16::try_from(offset).ok()
    };
    let free_threaded = at(words.free_threaded)?;
    let base = base.get(usize::from(free_threaded))?;
    let code_first_line = at(words.code_first_line)?;
    let text_ascii = at(words.text_ascii)?;
    let text_length = at(words.text_length)?;
    // A field that the table does not list has the same distance from a neighbour as in 3.13.
    let beside = |listed: u16, known: u16, wanted: u16| listed.wrapping_add(wanted.wrapping_sub(known));
    let [code_flags, code_version] = [base.code_flags, base.code_version]
        .map(|wanted| beside(code_first_line, base.code_first_line, wanted));
    let code_parts = base.code_parts.map(|wanted| beside(code_first_line, base.code_first_line, wanted));
    let has_copies = minor >= 14 && free_threaded == 1;
    Some(Layout {
        minor,
        thread_interp: at(words.thread_interp)?,
        thread_id: at(words.thread_id)?,
        // The table does not list these; 3.14 has them where 3.13 does.
        thread_context: base.thread_context,
        variable_hash: base.variable_hash,
        thread_frame: at(words.thread_frame)?,
        cframe_frame: ABSENT,
        frame_previous: at(words.frame_previous)?,
        frame_code: at(words.frame_code)?,
        frame_instruction: at(words.frame_instruction)?,
        frame_owner: at(words.frame_owner)?,
        frame_copy: if has_copies { at(FRAME_COPY_3_14)? } else { ABSENT },
        object_type: at(words.object_type)?,
        object_size: at(words.object_size)?,
        code_first_line,
        code_flags,
        code_file: at(words.code_file)?,
        code_name: at(words.code_name)?,
        code_start: at(words.code_start)?,
        code_table: at(words.code_table)?,
        code_version,
        code_copies: if has_copies { at(CODE_COPIES_3_14)? } else { ABSENT },
        text_length,
        text_hash: beside(text_length, base.text_length, base.text_hash),
        text_state: at(words.text_state)?,
        text_kind_shift: base.text_kind_shift,
        text_ascii,
        text_compact: beside(text_ascii, base.text_ascii, base.text_compact),
        bytes_data: at(words.bytes_data)?,
        code_parts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::memory::ProcessImage;

    fn image(version: u64, set: &[(u16, u16)]) -> Vec<u8> {
        let mut words = vec![0u64; 100];
        words[0] = COOKIE;
        words[1] = version;
        for (word, value) in set {
            words[usize::from(*word)] = u64::from(*value);
        }
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// The words of 3.13 with the values that its headers give.
    fn words_of(layout: &Layout, words: OffsetWords, free_threaded: u16) -> Vec<(u16, u16)> {
        vec![
            (words.free_threaded, free_threaded),
            (words.thread_interp, layout.thread_interp),
            (words.thread_frame, layout.thread_frame),
            (words.thread_id, layout.thread_id),
            (words.frame_previous, layout.frame_previous),
            (words.frame_code, layout.frame_code),
            (words.frame_instruction, layout.frame_instruction),
            (words.frame_owner, layout.frame_owner),
            (words.code_file, layout.code_file),
            (words.code_name, layout.code_name),
            (words.code_table, layout.code_table),
            (words.code_first_line, layout.code_first_line),
            (words.code_start, layout.code_start),
            (words.object_type, layout.object_type),
            (words.object_size, layout.object_size),
            (words.bytes_data, layout.bytes_data),
            (words.text_state, layout.text_state),
            (words.text_length, layout.text_length),
            (words.text_ascii, layout.text_ascii),
        ]
    }

    #[test]
    fn published_offsets_equal_those_of_the_headers() {
        for (layout, free_threaded) in [(table::V3_13, 0), (table::V3_13_FREE_THREADED, 1)] {
            let bytes = image(0x030d_00f0, &words_of(&layout, table::WORDS_3_13, free_threaded));
            let memory = ProcessImage { start: 0x10_0000, bytes: &bytes };
            assert_eq!(read(&memory, 0x10_0000), Some(layout));
        }
    }

    #[test]
    fn next_version_is_read_by_its_own_words() {
        let listed = Layout { minor: 14, frame_copy: 80, code_copies: 200, ..table::V3_13_FREE_THREADED };
        let mut words = words_of(&listed, WORDS_3_14, 1);
        words.extend([(FRAME_COPY_3_14, 80), (CODE_COPIES_3_14, 200)]);
        let bytes = image(0x030e_00f0, &words);
        assert_eq!(read(&ProcessImage { start: 0x10_0000, bytes: &bytes }, 0x10_0000), Some(listed));
    }

    #[test]
    fn nonsense_is_no_layout() {
        let good = words_of(&table::V3_13, table::WORDS_3_13, 0);
        let at = |bytes: &[u8]| read(&ProcessImage { start: 0x10_0000, bytes }, 0x10_0000);
        assert_eq!(at(&image(0x0310_00f0, &good)), None, "a version that nobody knows");
        assert_eq!(at(&image(0x040d_00f0, &good)), None);
        let mut far = good.clone();
        far.push((table::WORDS_3_13.code_file, 5000));
        assert_eq!(at(&image(0x030d_00f0, &far)), None);
        let mut other = good.clone();
        other.push((2, 2));
        assert_eq!(at(&image(0x030d_00f0, &other)), None);
        let mut bytes = image(0x030d_00f0, &good);
        bytes[0] = b'y';
        assert_eq!(at(&bytes), None);
        assert_eq!(at(&[]), None);
    }
}
