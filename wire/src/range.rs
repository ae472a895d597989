//! Ranges: what the program itself reports that it is doing (NVTX, framework operators). One cell each.
//!
//! ```text
//!  0  kind, cells, flags      8  start (ticks)      16  position     24  end (ticks)
//!  4  range definition                              20  open / color
//! 24 … 39  category and payload of a begin          40  id of a range that is ended by its id
//! ```
//!
//! A thread's open ranges are a list, and entries of its ring change that list. Every other entry
//! of the ring belongs to the ranges that are open at its position. Entries can be lost, so each
//! states its position in the list; a reader whose list is longer or shorter corrects it. An end
//! repeats all fields of its range, so that its duration is known whatever was lost. A push that
//! names a span has a second cell ([`Caller`]).

use crate::caller::Caller;
use crate::cell::{Cell, kind};

/// The begin of a range, or a moment (`MARK`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RangeBegin {
    /// `RANGE_PUSH`, `RANGE_START` or `MARK`.
    pub kind: u16,
    /// Range definition; 0 if its name did not fit.
    pub range: u32,
    pub start_ticks: u64,
    /// `RANGE_PUSH`: how many ranges are open around it on the thread.
    pub position: u32,
    /// ARGB; 0 if none was given.
    pub color: u32,
    /// The program's own number; 0 if none was given.
    pub category: u32,
    /// One of [`payload`].
    pub payload_kind: u32,
    pub payload: u64,
    /// `RANGE_START`: the number that its end will carry; otherwise 0.
    pub id: u64,
}

/// The end of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RangeEnd {
    /// `RANGE_POP` or `RANGE_END`.
    pub kind: u16,
    /// Range definition; 0 if it is not known. With `start_ticks` 0 no range ended: the list is cut, to
    /// remove ranges whose ends were not written.
    pub range: u32,
    /// 0 if the start is not known.
    pub start_ticks: u64,
    pub end_ticks: u64,
    /// `RANGE_POP`: the position in the list of the range that ended.
    pub position: u32,
    /// `RANGE_POP`: how many are open after it.
    pub open: u32,
    /// `RANGE_END`: the range's number.
    pub id: u64,
}

/// The type of a range's payload.
pub mod payload {
    pub const NONE: u32 = 0;
    pub const U64: u32 = 1;
    pub const I64: u32 = 2;
    pub const F64: u32 = 3;
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
}

/// The most open ranges of a thread that are recorded.
pub const POSITIONS_MAX: u32 = 64;

impl RangeBegin {
    #[inline(always)]
    pub fn to_cell(&self) -> Cell {
        let mut cell = Cell::new(self.kind, 1, 0);
        cell.put_u32(4, self.range);
        cell.put_u64(8, self.start_ticks);
        cell.put_u32(16, self.position);
        cell.put_u32(20, self.color);
        cell.put_u32(24, self.category);
        cell.put_u32(28, self.payload_kind);
        cell.put_u64(32, self.payload);
        cell.put_u64(40, self.id);
        cell
    }

    /// The entry of a range that names a span.
    pub fn to_cells(&self, caller: &Caller) -> [Cell; 2] {
        let mut first = self.to_cell();
        first.set_cells(2);
        [first, caller.to_further_cell()]
    }

    /// Decodes a begin; `None` if the kind is not one.
    pub fn from_cell(cell: &Cell) -> Option<RangeBegin> {
        matches!(cell.kind(), kind::RANGE_PUSH | kind::RANGE_START | kind::MARK).then(|| RangeBegin {
            kind: cell.kind(),
            range: cell.u32_at(4),
            start_ticks: cell.u64_at(8),
            position: cell.u32_at(16),
            color: cell.u32_at(20),
            category: cell.u32_at(24),
            payload_kind: cell.u32_at(28),
            payload: cell.u64_at(32),
            id: cell.u64_at(40),
        })
    }
}

impl RangeEnd {
    #[inline(always)]
    pub fn to_cell(&self) -> Cell {
        let mut cell = Cell::new(self.kind, 1, 0);
        cell.put_u32(4, self.range);
        cell.put_u64(8, self.start_ticks);
        cell.put_u32(16, self.position);
        cell.put_u32(20, self.open);
        cell.put_u64(24, self.end_ticks);
        cell.put_u64(40, self.id);
        cell
    }

    /// Decodes an end; `None` if the kind is not one.
    pub fn from_cell(cell: &Cell) -> Option<RangeEnd> {
        matches!(cell.kind(), kind::RANGE_POP | kind::RANGE_END).then(|| RangeEnd {
            kind: cell.kind(),
            range: cell.u32_at(4),
            start_ticks: cell.u64_at(8),
            end_ticks: cell.u64_at(24),
            position: cell.u32_at(16),
            open: cell.u32_at(20),
            id: cell.u64_at(40),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_round_trip(words: [u64; 4], small: [u32; 5], which in 0usize..3) {
            let [start_ticks, end_ticks, payload, id] = words;
            let [range, position, color, category, payload_kind] = small;
            let kind = [kind::RANGE_PUSH, kind::RANGE_START, kind::MARK][which];
            let begin = RangeBegin { kind, range, start_ticks, position, color, category, payload_kind, payload, id };
            prop_assert_eq!(RangeBegin::from_cell(&begin.to_cell()), Some(begin));
            prop_assert_eq!(RangeEnd::from_cell(&begin.to_cell()), None);
            let kind = [kind::RANGE_POP, kind::RANGE_END][which % 2];
            let end = RangeEnd { kind, range, start_ticks, end_ticks, position, open: color, id };
            prop_assert_eq!(RangeEnd::from_cell(&end.to_cell()), Some(end));
            prop_assert_eq!(RangeBegin::from_cell(&end.to_cell()), None);
        }
    }
}
