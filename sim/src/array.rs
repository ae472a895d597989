//! Arrays: memory with a format, laid out here in plain rows.

use crate::error::{Code, Result};
use crate::handle::Handle;
use crate::memory::Kind;
use crate::world::World;

/// One array.
#[derive(Clone, Copy, Debug)]
pub struct Array {
    pub context: Handle,
    pub base: u64,
    pub width: u64,
    pub height: u64,
    pub depth: u64,
    pub format: u32,
    pub channels: u32,
    pub flags: u32,
}

impl Array {
    /// Bytes of one element, by `CUarray_format`.
    fn element_bytes(format: u32, channels: u32) -> Result<u64> {
        let one = match format {
            0x01 | 0x08 => 1,
            0x02 | 0x09 | 0x10 => 2,
            0x03 | 0x0a | 0x20 => 4,
            _ => return Err(Code::INVALID_VALUE),
        };
        if matches!(channels, 1 | 2 | 4) { Ok(one * u64::from(channels)) } else { Err(Code::INVALID_VALUE) }
    }

    /// Bytes of one row.
    pub fn pitch(&self) -> u64 {
        self.width * Array::element_bytes(self.format, self.channels).unwrap_or(1)
    }

    /// Rows of one slice.
    pub fn rows(&self) -> u64 {
        self.height.max(1)
    }
}

impl World {
    /// `cuArray3DCreate`; `context` and `base` of `wanted` are filled in.
    pub fn create_array(&mut self, wanted: Array) -> Result<Handle> {
        let element = Array::element_bytes(wanted.format, wanted.channels)?;
        let sides = [wanted.width, wanted.height.max(1), wanted.depth.max(1), element];
        let bytes =
            sides.iter().try_fold(1u64, |all, &side| all.checked_mul(side)).ok_or(Code::INVALID_VALUE)?;
        let context = self.current()?;
        let base = self.allocate(bytes, Kind::Array, 0)?;
        self.arrays.insert(Array { context, base, ..wanted })
    }

    /// `cuArrayDestroy`.
    pub fn destroy_array(&mut self, array: Handle) -> Result {
        let held = self.arrays.remove(array)?;
        self.free_in_stream(held.base);
        Ok(())
    }
}
