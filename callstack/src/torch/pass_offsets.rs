//! The offset of a pass's number, and of the address that PyTorch returns for a pass. Both are decoded from
//! PyTorch's own functions: each loads a thread-local and then has one instruction that contains the
//! offset.
//!
//! An offset is used only once it is confirmed. A wrong offset gives a number that no thread has; it is
//! detected by comparison with live passes whose number is known ([`super::engine::Engine::is_met`]).

use gputrace_producer::stderr::KeepErrno;

use crate::python::memory::{Lent, Memory};

/// How much of a function is decoded; the functions have some 50 bytes.
const CODE_BYTES: usize = 96;
/// An upper bound: a pass has some 1100 bytes in version 2.15.
const PASS_BYTES: u32 = 4096;

/// Offsets from the beginning of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassOffsets {
    /// Its number, of which PyTorch returns the lower 32 bits.
    number: u32,
    /// The address that [`super::engine::Inside`] returns.
    inside: u32,
}

impl PassOffsets {
    /// Decodes the offsets from those two functions; `None` if they have another form.
    pub fn said(number: u64, inside: u64) -> Option<PassOffsets> {
        let code = |at: u64| {
            let mut code = [0; CODE_BYTES];
            Lent.read(at, 0, &mut code).then_some(code)
        };
        PassOffsets::of_code(&code(number)?, &code(inside)?)
    }

    fn of_code(number: &[u8], inside: &[u8]) -> Option<PassOffsets> {
        Some(PassOffsets { number: loaded(number)?, inside: added(inside)? })
    }

    /// The number of the live pass that begins at `pass`.
    pub fn number_of(self, pass: u64) -> Option<u32> {
        let _errno = KeepErrno::new();
        Lent.half(pass, self.number.into())
    }

    /// The number of the live pass that contains `inside` at its known offset.
    pub fn number_around(self, inside: u64) -> Option<u32> {
        self.number_of(inside.checked_sub(self.inside.into())?)
    }
}

fn in_a_pass(offset: &[u8]) -> Option<u32> {
    let offset = u32::from_le_bytes(*offset.first_chunk::<4>()?);
    (offset != 0 && offset < PASS_BYTES && offset.is_multiple_of(8)).then_some(offset)
}

/// `mov eax, [register + offset]`, of 32 bits: the value that the function returns.
fn loaded(code: &[u8]) -> Option<u32> {
    (1..code.len()).find_map(|at| match code.get(at - 1..)? {
        [before, 0x8b, how, offset @ ..]
            if before & 0xf0 != 0x40 && how & 0b1111_1000 == 0b1000_0000 && how & 7 != 4 =>
        {
            in_a_pass(offset)
        }
        _ => None,
    })
}

/// `add rax, offset` or `lea rax, [register + offset]`.
fn added(code: &[u8]) -> Option<u32> {
    (0..code.len()).find_map(|at| match code.get(at..)? {
        [0x48, 0x05, offset @ ..] => in_a_pass(offset),
        [0x48, 0x8d, how, offset @ ..] if how & 0b1111_1000 == 0b1000_0000 && how & 7 != 4 => {
            in_a_pass(offset)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `get_current_graph_task_id` and `get_current_graph_task_exec_info` of PyTorch 2.15.
    const NUMBER: [u8; 43] = [
        0x48, 0x83, 0xec, 0x08, 0xff, 0x15, 0xfe, 0x49, 0x1e, 0x0f, 0x48, 0x83, 0x38, 0x00, 0x74, 0x14, 0xff,
        0x15, 0xf2, 0x49, 0x1e, 0x0f, 0x48, 0x8b, 0x00, 0x8b, 0x80, 0x60, 0x04, 0x00, 0x00, 0x48, 0x83, 0xc4,
        0x08, 0xc3, 0xb8, 0xff, 0xff, 0xff, 0xff, 0xeb, 0xf4,
    ];
    const INSIDE: [u8; 28] = [
        0x48, 0x8b, 0x00, 0x48, 0x85, 0xc0, 0x74, 0x0f, 0xff, 0x15, 0x50, 0x4a, 0x1e, 0x0f, 0x48, 0x8b, 0x00,
        0x48, 0x05, 0x20, 0x01, 0x00, 0x00, 0x48, 0x83, 0xc4, 0x08, 0xc3,
    ];

    #[test]
    fn offsets_are_those_in_the_functions() {
        let offsets = PassOffsets { number: 0x460, inside: 0x120 };
        assert_eq!(PassOffsets::of_code(&NUMBER, &INSIDE), Some(offsets));
        // A load of 64 bits before it, as of a thread-local, and the other form of addition.
        let mut other = vec![0x48, 0x8b, 0x80, 0x18, 0, 0, 0];
        other.extend(NUMBER);
        let lea = [0x48, 0x8d, 0x87, 0x20, 0x01, 0, 0, 0xc3];
        assert_eq!(PassOffsets::of_code(&other, &lea), Some(offsets));
    }

    #[test]
    fn code_without_an_offset_has_none() {
        for cut in 0..31 {
            assert_eq!(PassOffsets::of_code(&NUMBER[..cut], &INSIDE), None, "{cut}");
        }
        for cut in 0..23 {
            assert_eq!(PassOffsets::of_code(&NUMBER, &INSIDE[..cut]), None, "{cut}");
        }
        // Offsets outside of any pass, and invalid ones.
        for offset in [0u32, 0x2000, 0x461, u32::MAX] {
            let mut code = NUMBER;
            code[27..31].copy_from_slice(&offset.to_le_bytes());
            assert_eq!(PassOffsets::of_code(&code, &INSIDE), None, "{offset:x}");
        }
        assert_eq!(PassOffsets::said(8, 8), None);
    }

    #[test]
    fn live_pass_has_its_number_there() {
        let mut pass = vec![0u64; 256];
        pass[0x460 / 8] = 1 << 32 | 77;
        let at = pass.as_ptr().expose_provenance() as u64;
        let offsets = PassOffsets { number: 0x460, inside: 0x120 };
        assert_eq!(offsets.number_of(at), Some(77));
        assert_eq!(
            (offsets.number_around(at + 0x120), offsets.number_around(at + 0x128)),
            (Some(77), Some(0))
        );
        assert_eq!((offsets.number_around(8), offsets.number_around(0x120 + 8)), (None, None));
    }
}
