//! Blocks: what a caching allocator inside the program gives out of the memory that the driver gave it.
//! One cell each.
//!
//! ```text
//!  0  kind, cells, flags      8  time (ticks)       24  stack definition
//!  4  device                 16  allocated bytes    32  reserved bytes
//!                                                   40  bytes    48  address
//! ```

use crate::cell::{Cell, kind};

/// A block was given out, or taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Block {
    /// The device, as the allocator numbers devices.
    pub device: u32,
    pub ticks: u64,
    /// All bytes that the allocator has given out on that device, after this change.
    pub allocated_bytes: u64,
    /// Of a block that was given out.
    pub stack: u32,
    /// What the allocator holds of the driver on that device.
    pub reserved_bytes: u64,
    /// The block's length; negative if it was taken back.
    pub bytes: i64,
    pub address: u64,
}

impl Block {
    #[inline(always)]
    pub fn to_cell(&self) -> Cell {
        let mut cell = Cell::new(kind::BLOCK, 1, 0);
        cell.put_u32(4, self.device);
        cell.put_u64(8, self.ticks);
        cell.put_u64(16, self.allocated_bytes);
        cell.put_u32(24, self.stack);
        cell.put_u64(32, self.reserved_bytes);
        cell.put_u64(40, self.bytes.cast_unsigned());
        cell.put_u64(48, self.address);
        cell
    }

    pub fn from_cell(cell: &Cell) -> Block {
        Block {
            device: cell.u32_at(4),
            ticks: cell.u64_at(8),
            allocated_bytes: cell.u64_at(16),
            stack: cell.u32_at(24),
            reserved_bytes: cell.u64_at(32),
            bytes: cell.u64_at(40).cast_signed(),
            address: cell.u64_at(48),
        }
    }
}

/// From here on blocks are recorded, or are not. In the service thread's ring, but for one at the session's
/// begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Blocks {
    pub is_on: bool,
    /// 0: since the process's session began.
    pub ticks: u64,
}

impl Blocks {
    pub fn to_cell(&self) -> Cell {
        let mut cell = Cell::new(kind::BLOCKS, 1, 0);
        cell.put_u8(4, self.is_on.into());
        cell.put_u64(8, self.ticks);
        cell
    }

    pub fn from_cell(cell: &Cell) -> Blocks {
        Blocks { is_on: cell.u8_at(4) != 0, ticks: cell.u64_at(8) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_round_trip(ids: [u32; 2], words: [u64; 4], bytes: i64, is_on: bool) {
            let [device, stack] = ids;
            let [ticks, allocated_bytes, reserved_bytes, address] = words;
            let block = Block { device, ticks, allocated_bytes, stack, reserved_bytes, bytes, address };
            prop_assert_eq!(Block::from_cell(&block.to_cell()), block);
            let blocks = Blocks { is_on, ticks };
            prop_assert_eq!(Blocks::from_cell(&blocks.to_cell()), blocks);
        }
    }
}
