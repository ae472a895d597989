//! The table of a mapped image: which entry covers a code address, and the entry's rule.
//!
//! `.eh_frame_hdr` is a sorted table of where functions begin. The table and the entries are read in
//! bounded pieces, by reads that cannot fault.

use super::cfi::{self, Common, Function, Reader, Unfit};
use super::rule::Rule;
use crate::python::memory::Memory;

/// Buffer sizes for an entry of each kind; a longer one is not read. The longest of 1.2 million in PyTorch,
/// CUDA's libraries and CPython have some 3 KiB.
pub const FUNCTION_BYTES: usize = 16 * 1024;
pub const COMMON_BYTES: usize = 256;

/// Buffers for entries.
pub struct Pieces {
    pub common: [u8; COMMON_BYTES],
    pub function: [u8; FUNCTION_BYTES],
}

/// The result of a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub function_start: u64,
    pub rule: Rule,
}

/// `.eh_frame_hdr` in the one form that linkers write: pointers of four bytes from the header's own
/// beginning.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const HEADER_BYTES: u64 = 12;
const ROW_BYTES: u64 = 8;

/// The rule of code address `place`, from the table at `header`.
pub fn look_up<M: Memory>(memory: &M, header: u64, place: u64, pieces: &mut Pieces) -> Result<Entry, Unfit> {
    let half = |at: u64, offset: u64| memory.half(at, offset).ok_or(Unfit);
    if half(header, 0)?.to_le_bytes() != HEADER {
        return Err(Unfit);
    }
    let mut count = u64::from(half(header, 8)?);
    let mut first = 0;
    let table = header.checked_add(HEADER_BYTES).ok_or(Unfit)?;
    let wanted = place.wrapping_sub(header).cast_signed();
    let row = |index: u64| table.checked_add(index * ROW_BYTES).ok_or(Unfit);
    // The last row that begins at or before the address.
    while count > 1 {
        let middle = first + count / 2;
        if i64::from(half(row(middle)?, 0)?.cast_signed()) <= wanted {
            (first, count) = (middle, count - count / 2);
        } else {
            count /= 2;
        }
    }
    if count == 0 {
        return Err(Unfit);
    }
    let function_at = header.wrapping_add_signed(half(row(first)?, 4)?.cast_signed().into());
    entry(memory, function_at, place, pieces)
}

fn entry<M: Memory>(memory: &M, at: u64, place: u64, pieces: &mut Pieces) -> Result<Entry, Unfit> {
    let function = piece(memory, at, &mut pieces.function)?;
    let (way, rest) = function.bytes.split_first_chunk::<4>().ok_or(Unfit)?;
    let back = u32::from_le_bytes(*way);
    // 0 marks a CIE, which is no function.
    let common_at = function.address.checked_sub(back.into()).filter(|_| back != 0).ok_or(Unfit)?;
    let common = piece(memory, common_at, &mut pieces.common)?;
    let (mark, of_common) = common.bytes.split_first_chunk::<4>().ok_or(Unfit)?;
    if *mark != [0; 4] {
        return Err(Unfit);
    }
    let common = Common::read(Reader { bytes: of_common, address: common.address + 4 })?;
    let function = Function::read(&common, Reader { bytes: rest, address: function.address + 4 })?;
    Ok(Entry { function_start: function.start, rule: cfi::rule(&common, &function, place)? })
}

/// The bytes of the entry at that address, after its length.
fn piece<'p, M: Memory>(memory: &M, at: u64, buffer: &'p mut [u8]) -> Result<Reader<'p>, Unfit> {
    let bytes = memory.half(at, 0).ok_or(Unfit)? as usize;
    let buffer = buffer.get_mut(..bytes).ok_or(Unfit)?;
    let address = at.checked_add(4).ok_or(Unfit)?;
    if !memory.read(address, 0, buffer) {
        return Err(Unfit);
    }
    Ok(Reader { bytes: buffer, address })
}

#[cfg(test)]
mod tests {
    use super::super::rule::{Kind, SavedBp};
    use super::*;
    use crate::python::memory::ProcessImage;

    const START: u64 = 0x10_0000;
    const HEADER_AT: u64 = START;
    const COMMON_AT: u64 = START + 0x100;
    const FUNCTION_AT: u64 = START + 0x200;
    const CODE: u64 = START + 0x8000;

    /// A table with one function of 100 bytes that has those instructions.
    fn image(augmentation: &str, instructions: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0u8; 0x9000];
        let mut put = |at: u64, what: &[u8]| {
            let from = (at - START) as usize;
            bytes[from..from + what.len()].copy_from_slice(what);
        };
        put(HEADER_AT, &HEADER);
        put(HEADER_AT + 8, &1u32.to_le_bytes());
        put(HEADER_AT + 12, &((CODE - HEADER_AT) as u32).to_le_bytes());
        put(HEADER_AT + 16, &((FUNCTION_AT - HEADER_AT) as u32).to_le_bytes());
        let mut common = vec![0, 0, 0, 0, 1];
        common.extend(augmentation.as_bytes());
        common.extend([0, 1, 0x78, 16]);
        if augmentation.starts_with('z') {
            common.extend([1, 0x1b]);
        }
        // The CFA is 8 bytes above the stack pointer, the return address below the CFA.
        common.extend([0x0c, 7, 8, 0x90, 1]);
        put(COMMON_AT, &(common.len() as u32).to_le_bytes());
        put(COMMON_AT + 4, &common);
        let mut function = ((FUNCTION_AT + 4 - COMMON_AT) as u32).to_le_bytes().to_vec();
        function.extend(((CODE - FUNCTION_AT - 8) as u32).to_le_bytes());
        function.extend(100u32.to_le_bytes());
        function.push(0);
        function.extend(instructions);
        put(FUNCTION_AT, &(function.len() as u32).to_le_bytes());
        put(FUNCTION_AT + 4, &function);
        bytes
    }

    fn rule(bytes: &[u8], place: u64) -> Result<Rule, Unfit> {
        let mut pieces = Pieces { common: [0; COMMON_BYTES], function: [0; FUNCTION_BYTES] };
        let found = look_up(&ProcessImage { start: START, bytes }, HEADER_AT, place, &mut pieces)?;
        assert_eq!(found.function_start, CODE);
        Ok(found.rule)
    }

    fn parts(rule: Rule) -> (Kind, i64, SavedBp) {
        (rule.kind(), rule.cfa_offset(), rule.saved_bp())
    }

    #[test]
    fn function_with_a_frame_pointer_is_followed_through_its_prologue() {
        // push rbp; mov rbp, rsp; … leave
        let bytes = image("zR", &[0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x02, 50, 0x0c, 7, 8]);
        assert_eq!(rule(&bytes, CODE).map(parts), Ok((Kind::Sp, 8, SavedBp::Unchanged)));
        assert_eq!(rule(&bytes, CODE + 1).map(parts), Ok((Kind::Sp, 16, SavedBp::FromCfa(-16))));
        assert_eq!(rule(&bytes, CODE + 4).map(parts), Ok((Kind::Bp, 16, SavedBp::FromCfa(-16))));
        assert_eq!(rule(&bytes, CODE + 53).map(parts), Ok((Kind::Bp, 16, SavedBp::FromCfa(-16))));
        assert_eq!(rule(&bytes, CODE + 54).map(parts), Ok((Kind::Sp, 8, SavedBp::FromCfa(-16))));
        assert_eq!(rule(&bytes, CODE + 100), Err(Unfit));
        assert_eq!(rule(&bytes, CODE - 1), Err(Unfit));
    }

    #[test]
    fn states_are_put_aside_and_taken_back() {
        let bytes = image("zR", &[0x41, 0x0e, 48, 0x0a, 0x41, 0x0e, 8, 0x41, 0x0b]);
        let offsets = [0, 1, 2, 3].map(|at| rule(&bytes, CODE + at).unwrap().cfa_offset());
        assert_eq!(offsets, [8, 48, 8, 48]);
    }

    #[test]
    fn aligned_stack_is_followed() {
        // The CFA in r10; then in the word 8 bytes below where the frame pointer points.
        let aligned = [0x41, 0x0c, 10, 0, 0x41, 0x10, 6, 2, 0x76, 0, 0x41, 0x0f, 3, 0x76, 0x78, 0x06];
        let bytes = image("zR", &aligned);
        assert_eq!(rule(&bytes, CODE + 1), Err(Unfit));
        assert_eq!(rule(&bytes, CODE + 3).map(parts), Ok((Kind::AtBp, -8, SavedBp::AtBp)));
    }

    #[test]
    fn thread_starts_and_signal_frames_are_recognized() {
        assert_eq!(rule(&image("zR", &[0x07, 16]), CODE + 1).map(Rule::kind), Ok(Kind::Outermost));
        assert_eq!(rule(&image("zRS", &[]), CODE + 1).map(Rule::kind), Ok(Kind::Signal));
    }

    #[test]
    fn rule_that_does_not_fit_ends_the_stack() {
        for instructions in [
            &[0x0c, 3, 16][..],
            &[0x0f, 2, 0x77, 8],
            &[0x90, 2],
            &[0x09, 6, 3],
            &[0x16, 6, 2, 0x76, 0],
            &[0x0e, 12],
            &[0x0b],
            &[0x3f],
            &[0x0f, 200],
            &[0x0a; 9],
            &[0x0e, 0x80],
        ] {
            assert_eq!(rule(&image("zR", instructions), CODE + 1), Err(Unfit), "{instructions:x?}");
        }
        assert_eq!(rule(&image("eh", &[]), CODE), Err(Unfit));
    }

    #[test]
    fn table_cut_or_changed_anywhere_is_read_to_an_end() {
        let good = image("zR", &[0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x02, 50, 0x0c, 7, 8]);
        let mut pieces = Pieces { common: [0; COMMON_BYTES], function: [0; FUNCTION_BYTES] };
        for at in (0..0x20).chain(0x100..0x120).chain(0x200..0x21e) {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = value;
                let _ =
                    look_up(&ProcessImage { start: START, bytes: &bytes }, HEADER_AT, CODE + 4, &mut pieces);
            }
            let cut = ProcessImage { start: START, bytes: &good[..at] };
            assert_eq!(look_up(&cut, HEADER_AT, CODE + 4, &mut pieces), Err(Unfit));
        }
    }
}
