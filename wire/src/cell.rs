//! Cells: the 64-byte unit of a ring, and the header that begins every entry.
//!
//! ```text
//!  byte 0        2       3       4                                             64
//!       ┌────────┬───────┬───────┬──────────────────────────────────────────────┐
//!       │ kind   │ cells │ flags │ payload, by kind                             │
//!       └────────┴───────┴───────┴──────────────────────────────────────────────┘
//! ```
//!
//! An entry is `cells` consecutive cells. Only the first has the header; the others are
//! payload throughout. A reader that does not know `kind` skips `cells` cells.

use core::mem::size_of;

/// Bytes of a cell: one cache line, so that two threads' cells never share one.
pub const CELL_BYTES: usize = 64;
/// 64-bit words of a cell. The model checker explores cells of one word: the number of
/// interleavings grows with the words, the ordering argument does not.
#[cfg(not(loom))]
pub const CELL_WORDS: usize = CELL_BYTES / 8;
#[cfg(loom)]
pub const CELL_WORDS: usize = 1;

/// A cell, copied out of or about to be copied into a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct Cell(pub [u64; CELL_WORDS]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Cell>() == CELL_BYTES);
#[cfg(loom)]
const _: () = assert!(size_of::<Cell>() >= 8);

/// Entry kinds. The ranges have spare numbers: 1–15 the stream itself, 16–31 host calls, 32–47 device
/// records, 48–63 ranges and operators, 64–79 failed calls and collectives, 80–95 other vendors.
pub mod kind {
    pub const THREAD_BEGIN: u16 = 1;
    pub const ANCHOR: u16 = 2;
    pub const EPOCH_BEGIN: u16 = 3;
    pub const GAP: u16 = 4;
    pub const RECORDING: u16 = 5;
    pub const DEVICE_TIMES: u16 = 6;

    pub const LAUNCH: u16 = 16;
    pub const GRAPH_LAUNCH: u16 = 17;
    pub const COPY: u16 = 18;
    pub const FILL: u16 = 19;
    pub const ALLOC: u16 = 20;
    pub const FREE: u16 = 21;
    pub const WAIT: u16 = 22;
    pub const MODULE: u16 = 23;
    pub const GRAPH: u16 = 24;
    pub const CALL: u16 = 25;
    /// Not a call: the graph nodes that a call made.
    pub const GRAPH_NODE: u16 = 26;
    pub const MEMORY: u16 = 27;
    /// Not a call: a caching allocator of the program's gave out a block, or took one back.
    pub const BLOCK: u16 = 28;
    /// From here on blocks are recorded, or are not.
    pub const BLOCKS: u16 = 29;
    /// Not a call: launches of one kernel on one stream that were counted and are in no entry of their own.
    pub const COUNTED: u16 = 30;

    pub const DEVICE_KERNEL: u16 = 32;
    pub const DEVICE_COPY: u16 = 33;
    pub const DEVICE_FILL: u16 = 34;
    pub const DEVICE_GRAPH: u16 = 35;

    pub const RANGE_PUSH: u16 = 48;
    pub const RANGE_POP: u16 = 49;
    pub const RANGE_START: u16 = 50;
    pub const RANGE_END: u16 = 51;
    pub const MARK: u16 = 52;
    pub const CALLER: u16 = 53;
}

/// Header flags, common to every host call.
pub mod flag {
    /// `duration` counts units of 65 536 ticks: the call lasted longer than 2^32 ticks (waits do).
    pub const LONG_DURATION: u8 = 1;
    /// The call went to a stream that was being captured, or added a node to a graph: it executed nothing.
    pub const CAPTURED: u8 = 2;
    /// The function was called through its per-thread-default-stream variant.
    pub const PER_THREAD_STREAM: u8 = 4;
    /// The call does not wait for the device (an `Async` entry).
    pub const ASYNC: u8 = 8;
    /// The session was paused: the entry says which device records are not to be counted, and nothing else.
    pub const PAUSED: u8 = 16;
    /// Device times were off, or being switched: the call has no device record that counts.
    pub const UNTIMED: u8 = 32;
    /// A launch whose stack was not taken, to keep a budget. Where it probably was is what other launches of
    /// its kernel say.
    pub const UNSTACKED: u8 = 64;
}

impl Cell {
    pub const ZERO: Cell = Cell([0; CELL_WORDS]);

    /// A first cell with its header set and its payload zero.
    #[inline(always)]
    pub const fn new(kind: u16, cells: u8, flags: u8) -> Cell {
        let mut words = [0; CELL_WORDS];
        words[0] = kind as u64 | (cells as u64) << 16 | (flags as u64) << 24;
        Cell(words)
    }

    pub fn kind(&self) -> u16 {
        self.u16_at(0)
    }

    /// The entry's length in cells as written. 0 is damage; whoever steps over entries must check for it.
    pub fn cells(&self) -> u8 {
        self.u8_at(2)
    }

    pub fn set_cells(&mut self, cells: u8) {
        self.put_u8(2, cells);
    }

    pub fn flags(&self) -> u8 {
        self.u8_at(3)
    }

    #[inline(always)]
    pub fn set_flags(&mut self, flags: u8) {
        self.put_u8(3, flags);
    }
}

/// Typed access by byte offset. Offsets are constants at every call, so the compiler removes the bounds
/// checks. An offset past the end reads 0 and writes nothing instead of panicking.
impl Cell {
    #[inline(always)]
    pub fn u64_at(&self, at: usize) -> u64 {
        debug_assert!(at.is_multiple_of(8));
        self.0.get(at / 8).copied().unwrap_or(0)
    }
    #[inline(always)]
    pub fn u32_at(&self, at: usize) -> u32 {
        debug_assert!(at.is_multiple_of(4));
        (self.0.get(at / 8).copied().unwrap_or(0) >> ((at % 8) * 8)) as u32
    }
    #[inline(always)]
    pub fn u16_at(&self, at: usize) -> u16 {
        debug_assert!(at.is_multiple_of(2));
        (self.0.get(at / 8).copied().unwrap_or(0) >> ((at % 8) * 8)) as u16
    }
    #[inline(always)]
    pub fn u8_at(&self, at: usize) -> u8 {
        (self.0.get(at / 8).copied().unwrap_or(0) >> ((at % 8) * 8)) as u8
    }
    #[inline(always)]
    fn put(&mut self, at: usize, value: u64, bits: u32) {
        if let Some(word) = self.0.get_mut(at / 8) {
            let shift = (at % 8) * 8;
            let mask = if bits == 64 { u64::MAX } else { ((1u64 << bits) - 1) << shift };
            *word = (*word & !mask) | ((value << shift) & mask);
        }
    }
    #[inline(always)]
    pub fn put_u64(&mut self, at: usize, value: u64) {
        debug_assert!(at.is_multiple_of(8));
        self.put(at, value, 64);
    }
    #[inline(always)]
    pub fn put_u32(&mut self, at: usize, value: u32) {
        debug_assert!(at.is_multiple_of(4));
        self.put(at, value as u64, 32);
    }
    #[inline(always)]
    pub fn put_u16(&mut self, at: usize, value: u16) {
        debug_assert!(at.is_multiple_of(2));
        self.put(at, value as u64, 16);
    }
    #[inline(always)]
    pub fn put_u8(&mut self, at: usize, value: u8) {
        self.put(at, value as u64, 8);
    }

    /// The cell as bytes, for files.
    #[cfg(not(loom))]
    pub fn to_bytes(&self) -> [u8; CELL_BYTES] {
        let mut bytes = [0; CELL_BYTES];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The inverse of [`Cell::to_bytes`].
    #[cfg(not(loom))]
    pub fn from_bytes(bytes: &[u8; CELL_BYTES]) -> Cell {
        let mut words = [0; CELL_WORDS];
        for (chunk, word) in bytes.chunks_exact(8).zip(words.iter_mut()) {
            *word = u64::from_le_bytes(chunk.try_into().unwrap_or([0; 8]));
        }
        Cell(words)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn header_fields_do_not_overlap() {
        let mut cell = Cell::new(0xabcd, 3, 0x81);
        cell.put_u32(4, 0xdead_beef);
        cell.put_u16(62, 0x1234);
        assert_eq!((cell.kind(), cell.cells(), cell.flags()), (0xabcd, 3, 0x81));
        assert_eq!(cell.u32_at(4), 0xdead_beef);
        assert_eq!(cell.u16_at(62), 0x1234);
        cell.set_flags(2);
        assert_eq!((cell.kind(), cell.cells(), cell.flags()), (0xabcd, 3, 2));
    }

    #[test]
    fn bytes_round_trip() {
        let mut cell = Cell::new(16, 1, 0);
        cell.put_u64(56, u64::MAX - 1);
        cell.put_u8(9, 7);
        assert_eq!(Cell::from_bytes(&cell.to_bytes()), cell);
    }
}
