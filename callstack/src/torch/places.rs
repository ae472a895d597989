//! Where a pass has its number and what PyTorch tells of it, as PyTorch's own functions say it: each is a look at a
//! thread-local and then one instruction that has the place in it.
//!
//! Nothing is believed of it that is not seen to be so: a place that was read wrongly gives a number that no
//! thread meets, and is then compared with live passes whose number is known ([`super::engine::Engine::is_met`]).

use gputrace_producer::stderr::KeepErrno;

use crate::python::memory::{Lent, Memory};

/// How much of a function is looked at; they have some 50 bytes.
const CODE_BYTES: usize = 96;
/// A pass has some 1100 bytes in version 2.15.
const PASS_BYTES: u32 = 4096;

/// From the beginning of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// Its number, of which PyTorch tells the lower 32 bits.
    number: u32,
    /// What [`super::engine::Inside`] tells.
    inside: u32,
}

impl Places {
    /// As those two functions say it: `None` where they are written in another way.
    pub fn said(number: u64, inside: u64) -> Option<Places> {
        let code = |at: u64| {
            let mut code = [0; CODE_BYTES];
            Lent.read(at, 0, &mut code).then_some(code)
        };
        Places::of_code(&code(number)?, &code(inside)?)
    }

    fn of_code(number: &[u8], inside: &[u8]) -> Option<Places> {
        Some(Places { number: loaded(number)?, inside: added(inside)? })
    }

    /// The number of the pass that begins at `pass`, which lives.
    pub fn number_of(self, pass: u64) -> Option<u32> {
        let _errno = KeepErrno::new();
        Lent.half(pass, self.number.into())
    }

    /// The number of the pass that has `inside` in it, and lives.
    pub fn number_around(self, inside: u64) -> Option<u32> {
        self.number_of(inside.checked_sub(self.inside.into())?)
    }
}

fn in_a_pass(place: &[u8]) -> Option<u32> {
    let place = u32::from_le_bytes(*place.first_chunk::<4>()?);
    (place != 0 && place < PASS_BYTES && place.is_multiple_of(8)).then_some(place)
}

/// `mov eax, [register + place]`, of 32 bits: what the function returns.
fn loaded(code: &[u8]) -> Option<u32> {
    (1..code.len()).find_map(|at| match code.get(at - 1..)? {
        [before, 0x8b, how, place @ ..]
            if before & 0xf0 != 0x40 && how & 0b1111_1000 == 0b1000_0000 && how & 7 != 4 =>
        {
            in_a_pass(place)
        }
        _ => None,
    })
}

/// `add rax, place` or `lea rax, [register + place]`.
fn added(code: &[u8]) -> Option<u32> {
    (0..code.len()).find_map(|at| match code.get(at..)? {
        [0x48, 0x05, place @ ..] => in_a_pass(place),
        [0x48, 0x8d, how, place @ ..] if how & 0b1111_1000 == 0b1000_0000 && how & 7 != 4 => in_a_pass(place),
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
    fn places_are_those_that_the_functions_have_in_them() {
        let places = Places { number: 0x460, inside: 0x120 };
        assert_eq!(Places::of_code(&NUMBER, &INSIDE), Some(places));
        // A load of 64 bits before it, as of a thread-local, and the other way to add.
        let mut other = vec![0x48, 0x8b, 0x80, 0x18, 0, 0, 0];
        other.extend(NUMBER);
        let lea = [0x48, 0x8d, 0x87, 0x20, 0x01, 0, 0, 0xc3];
        assert_eq!(Places::of_code(&other, &lea), Some(places));
    }

    #[test]
    fn code_that_says_no_place_tells_none() {
        for cut in 0..31 {
            assert_eq!(Places::of_code(&NUMBER[..cut], &INSIDE), None, "{cut}");
        }
        for cut in 0..23 {
            assert_eq!(Places::of_code(&NUMBER, &INSIDE[..cut]), None, "{cut}");
        }
        // Outside of any pass, and where no number can be.
        for place in [0u32, 0x2000, 0x461, u32::MAX] {
            let mut code = NUMBER;
            code[27..31].copy_from_slice(&place.to_le_bytes());
            assert_eq!(Places::of_code(&code, &INSIDE), None, "{place:x}");
        }
        assert_eq!(Places::said(8, 8), None);
    }

    #[test]
    fn a_live_pass_has_its_number_there() {
        let mut pass = vec![0u64; 256];
        pass[0x460 / 8] = 1 << 32 | 77;
        let at = pass.as_ptr().expose_provenance() as u64;
        let places = Places { number: 0x460, inside: 0x120 };
        assert_eq!(places.number_of(at), Some(77));
        assert_eq!((places.number_around(at + 0x120), places.number_around(at + 0x128)), (Some(77), Some(0)));
        assert_eq!((places.number_around(8), places.number_around(0x120 + 8)), (None, None));
    }
}
