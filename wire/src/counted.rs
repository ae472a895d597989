//! Launches that were counted instead of recorded, to keep a budget ([`crate::budget`]). One cell for each
//! kernel and stream, written by the service thread from time to time; and one for a launch that found no
//! space in the process's table, written by its own thread.
//!
//! ```text
//!  0  kind, cells, flags      8  begin (ticks)      24  launches
//!  4  function definition    16  end (ticks)        32  stream definition
//! ```

use crate::cell::{Cell, kind};

/// Launches of one kernel on one stream, by any threads, made between about these two times. None of them has
/// an entry of its own in a ring, or device times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    pub function: u32,
    pub begin_ticks: u64,
    pub end_ticks: u64,
    pub launches: u64,
    pub stream: u32,
}

impl Counted {
    pub fn to_cell(&self) -> Cell {
        let mut cell = Cell::new(kind::COUNTED, 1, 0);
        cell.put_u32(4, self.function);
        cell.put_u64(8, self.begin_ticks);
        cell.put_u64(16, self.end_ticks);
        cell.put_u64(24, self.launches);
        cell.put_u32(32, self.stream);
        cell
    }

    pub fn from_cell(cell: &Cell) -> Counted {
        Counted {
            function: cell.u32_at(4),
            begin_ticks: cell.u64_at(8),
            end_ticks: cell.u64_at(16),
            launches: cell.u64_at(24),
            stream: cell.u32_at(32),
        }
    }
}
