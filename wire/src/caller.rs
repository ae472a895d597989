//! Callers: the span of another tracer that a thread's work belongs to.
//!
//! ```text
//!  0  kind, cells, flags      8  ticks              16  trace id (lower, upper half)
//!  4  trace flags  5  remote                        32  span id
//! ```
//!
//! A `CALLER` entry sets the thread's active span from here on. A server's thread handles one request
//! after another, and no table of them is kept. A range that names a span has the same fields in its
//! second cell; that span holds for everything inside the range.

use crate::cell::{Cell, kind};

/// A span of another tracer; ids of 0 mean no span.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Caller {
    /// The trace id, lower and upper half.
    pub trace: [u64; 2],
    pub span: u64,
    /// W3C trace flags: 1 is sampled.
    pub flags: u8,
    /// 1 if the span is of another process; 0 if it is of this process or if that is not known.
    pub remote: u8,
}

impl Caller {
    pub const NOBODY: Caller = Caller { trace: [0, 0], span: 0, flags: 0, remote: 0 };

    #[inline(always)]
    pub fn is_nobody(&self) -> bool {
        self.span == 0
    }

    fn put(&self, cell: &mut Cell) {
        cell.put_u8(4, self.flags);
        cell.put_u8(5, self.remote);
        let [lower, upper] = self.trace;
        cell.put_u64(16, lower);
        cell.put_u64(24, upper);
        cell.put_u64(32, self.span);
    }

    /// Decodes the span of a cell, of any kind of entry. A span with only half of its ids counts as none.
    pub fn of_cell(cell: &Cell) -> Caller {
        let trace = [cell.u64_at(16), cell.u64_at(24)];
        let caller = Caller { trace, span: cell.u64_at(32), flags: cell.u8_at(4), remote: cell.u8_at(5) };
        if caller.span == 0 || trace == [0, 0] { Caller::NOBODY } else { caller }
    }

    /// The span as the second cell of an entry.
    pub fn to_further_cell(self) -> Cell {
        let mut cell = Cell::ZERO;
        self.put(&mut cell);
        cell
    }
}

/// A hexadecimal field of a traceparent as a number. Lower case only, as W3C requires; of more than 32
/// digits the last ones count.
pub fn hexadecimal(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0u128, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

/// The active span of the ring's thread from here on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallerEntry {
    pub caller: Caller,
    pub ticks: u64,
}

impl CallerEntry {
    pub fn to_cell(&self) -> Cell {
        let mut cell = Cell::new(kind::CALLER, 1, 0);
        cell.put_u64(8, self.ticks);
        self.caller.put(&mut cell);
        cell
    }

    pub fn from_cell(cell: &Cell) -> CallerEntry {
        CallerEntry { caller: Caller::of_cell(cell), ticks: cell.u64_at(8) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn callers_round_trip(words: [u64; 4], flags: u8, remote: u8) {
            let [lower, upper, span, ticks] = words;
            let caller = Caller { trace: [lower, upper], span, flags, remote };
            let caller = if span == 0 || lower | upper == 0 { Caller::NOBODY } else { caller };
            let entry = CallerEntry { caller, ticks };
            prop_assert_eq!(CallerEntry::from_cell(&entry.to_cell()), entry);
            prop_assert_eq!(entry.to_cell().kind(), kind::CALLER);
            prop_assert_eq!(Caller::of_cell(&caller.to_further_cell()), caller);
        }
    }

    #[test]
    fn digits_are_lower_case_and_nothing_else() {
        let all = [("", 0), ("0", 0), ("09af", 0x09af), ("ffffffffffffffffffffffffffffffff", u128::MAX)];
        for (digits, number) in all {
            assert_eq!(hexadecimal(digits.as_bytes()), Some(number), "{digits}");
        }
        assert_eq!(
            hexadecimal(b"123456789abcdef0123456789abcdef01"),
            Some(0x2345_6789_abcd_ef01_2345_6789_abcd_ef01)
        );
        for digits in ["A", "g", "-1", "0x1", " 1", "1 ", "\u{e9}"] {
            assert_eq!(hexadecimal(digits.as_bytes()), None, "{digits}");
        }
    }

    #[test]
    fn incomplete_id_counts_as_none() {
        for (trace, span) in [([0, 0], 7), ([1, 0], 0)] {
            let caller = Caller { trace, span, flags: 1, remote: 1 };
            assert_eq!(Caller::of_cell(&caller.to_further_cell()), Caller::NOBODY);
        }
    }
}
