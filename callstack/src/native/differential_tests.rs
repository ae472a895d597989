//! Compares what this folder reads of tables with what gimli reads, for all functions of the mapped
//! libraries.

use gimli::{BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, LittleEndian, Register, RegisterRule};
use gimli::{UnwindContext, UnwindSection};

use super::cfi::Unfit;
use super::eh_frame::{COMMON_BYTES, Entry, FUNCTION_BYTES, Pieces, look_up};
use super::rule::{Kind, SavedBp};
use super::{elf, maps};
use crate::python::memory::Checked;

const BP: Register = Register(6);
const SP: Register = Register(7);
const RETURN: Register = Register(16);

/// The expected rule of a row that a rule can represent.
fn expected(
    row: &gimli::UnwindTableRow<usize>,
    frames: &EhFrame<EndianSlice<'_, LittleEndian>>,
) -> Option<(Kind, i64, SavedBp)> {
    if row.register(RETURN) == Some(RegisterRule::Undefined) {
        return Some((Kind::Outermost, 0, SavedBp::Unchanged));
    }
    if row.register(RETURN) != Some(RegisterRule::Offset(-8)) {
        return None;
    }
    let bytes =
        |expression: gimli::UnwindExpression<usize>| expression.get(frames).unwrap().0.slice().to_vec();
    let (kind, offset) = match row.cfa().clone() {
        CfaRule::RegisterAndOffset { register: SP, offset } => (Kind::Sp, offset),
        CfaRule::RegisterAndOffset { register: BP, offset } => (Kind::Bp, offset),
        CfaRule::Expression(expression) => match bytes(expression)[..] {
            [0x76, offset, 0x06] if offset & 0x80 == 0 => (Kind::AtBp, i64::from(((offset << 1) as i8) >> 1)),
            [0x76, low, high, 0x06] if low & 0x80 != 0 && high & 0x80 == 0 => {
                let value = i64::from(low & 0x7f) | i64::from(high) << 7;
                (Kind::AtBp, value << 50 >> 50)
            }
            _ => return None,
        },
        _ => return None,
    };
    let bp = match row.register(BP) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => SavedBp::Unchanged,
        Some(RegisterRule::Offset(offset)) => SavedBp::FromCfa(offset),
        Some(RegisterRule::Expression(expression)) if bytes(expression) == [0x76, 0] => SavedBp::AtBp,
        _ => return None,
    };
    (offset % 8 == 0).then_some((kind, offset, bp))
}

/// (rows compared, rows that no rule can represent).
fn compare(start: u64) -> (u32, u32) {
    let memory = Checked::new();
    let image = elf::read(&memory, start).unwrap();
    assert_ne!(image.frames, 0);
    // SAFETY: a mapped library that stays: its header of frames, and what the header points to, up to the
    // image's end.
    let (at, bytes) = unsafe {
        let header = image.frames as *const u8;
        let at = image.frames + 4 + i64::from(header.add(4).cast::<i32>().read_unaligned()).cast_unsigned();
        let mut end = at;
        // The section ends with a length of zero.
        while (end as *const u32).read_unaligned() != 0 {
            end += u64::from((end as *const u32).read_unaligned()) + 4;
        }
        (at, core::slice::from_raw_parts(at as *const u8, (end - at) as usize + 4))
    };
    let frames = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(at);
    let mut pieces = Pieces { common: [0; COMMON_BYTES], function: [0; FUNCTION_BYTES] };
    let mut context = UnwindContext::new();
    let (mut compared, mut unfit) = (0, 0);
    let mut entries = frames.entries(&bases);
    while let Some(entry) = entries.next().unwrap() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let function = partial.parse(EhFrame::cie_from_offset).unwrap();
        if function.len() == 0 {
            continue;
        }
        let mut table = function.rows(&frames, &bases, &mut context).unwrap();
        while let Some(row) = table.next_row().unwrap() {
            if row.start_address() >= row.end_address() {
                continue;
            }
            let expected = match function.is_signal_trampoline() {
                true => Some((Kind::Signal, 0, SavedBp::Unchanged)),
                false => expected(row, &frames),
            };
            for place in [row.start_address(), row.end_address() - 1] {
                let found = look_up(&memory, image.frames, place, &mut pieces);
                let found = found.map(|Entry { function_start, rule }| {
                    assert_eq!(function_start, function.initial_address());
                    (rule.kind(), rule.cfa_offset(), rule.saved_bp())
                });
                assert_eq!(found, expected.ok_or(Unfit), "{place:#x} of {:#x}", function.initial_address());
            }
            compared += 1;
            unfit += u32::from(expected.is_none());
        }
    }
    (compared, unfit)
}

#[test]
fn rules_of_all_mapped_functions_are_those_that_gimli_reads() {
    let of_libc = libc::qsort as *const () as u64;
    let of_unwinder = {
        unsafe extern "C" {
            fn _Unwind_Resume();
        }
        _Unwind_Resume as *const () as u64
    };
    let own = compare as *const () as u64;
    for place in [own, of_libc, of_unwinder] {
        let mut lines = [0; 4196];
        let (start, path) = maps::image_at(place, &mut lines).unwrap();
        let (compared, unfit) = compare(start);
        let path = String::from_utf8_lossy(path);
        println!("{path}: {compared} rows, {unfit} without a rule");
        assert!(
            compared > 100 && unfit < compared / 50 + 20,
            "{path}: {compared} rows, {unfit} without a rule"
        );
    }
}
