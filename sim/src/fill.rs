//! Memory set to a value.

use crate::activity::{self, Activity};
use crate::device::{self, Route};
use crate::error::{Code, Result};
use crate::work::StreamIds;
use crate::world::World;

/// Rows of equal elements to be written, the target checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    pub target: u64,
    pub pitch: u64,
    pub value: u32,
    pub element_bytes: u32,
    /// In elements.
    pub width: u64,
    pub height: u64,
}

impl Pattern {
    /// Writes the elements.
    pub fn run(&self) {
        for y in 0..self.height {
            let row = self.target + y * self.pitch;
            // SAFETY: the whole pattern was checked against the memory map by `plan_fill`, and the row is
            // aligned to its element there.
            unsafe {
                match self.element_bytes {
                    1 => std::ptr::write_bytes(row as *mut u8, self.value as u8, self.width as usize),
                    2 => std::slice::from_raw_parts_mut(row as *mut u16, self.width as usize)
                        .fill(self.value as u16),
                    _ => {
                        std::slice::from_raw_parts_mut(row as *mut u32, self.width as usize).fill(self.value)
                    }
                }
            }
        }
    }
}

/// A fill that is ready to be performed, any number of times.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    pub pattern: Pattern,
    bytes: u64,
    asynchronous: bool,
    memory_kind: u8,
}

impl World {
    /// Checks a fill.
    pub fn plan_fill(&self, pattern: Pattern, asynchronous: bool) -> Result<Fill> {
        self.current()?;
        let element = u64::from(pattern.element_bytes);
        if !matches!(element, 1 | 2 | 4) || !pattern.target.is_multiple_of(element) {
            return Err(Code::INVALID_VALUE);
        }
        let row = pattern.width.checked_mul(element).ok_or(Code::INVALID_VALUE)?;
        let bytes = row.checked_mul(pattern.height).ok_or(Code::INVALID_VALUE)?;
        if bytes == 0 {
            return Ok(Fill {
                pattern: Pattern { width: 0, ..pattern },
                bytes,
                asynchronous,
                memory_kind: 0,
            });
        }
        if pattern.height > 1 && (pattern.pitch < row || !pattern.pitch.is_multiple_of(element)) {
            return Err(Code::INVALID_VALUE);
        }
        let span = (pattern.height - 1).checked_mul(pattern.pitch).and_then(|rows| rows.checked_add(row));
        let held = self.memory.find_range(pattern.target, span.ok_or(Code::INVALID_VALUE)?)?;
        Ok(Fill { pattern, bytes, asynchronous, memory_kind: held.kind.activity_kind() })
    }

    /// Performs a fill that starts at `start_ns`; returns its end.
    pub fn perform_fill(
        &mut self,
        fill: &Fill,
        ids: &StreamIds,
        start_ns: u64,
        correlation: u32,
        node: Option<(u32, u64)>,
    ) -> u64 {
        let end_ns = start_ns + device::transfer_duration_ns(Route::Fill, fill.bytes);
        if fill.bytes > 0 {
            self.after.fill(fill.pattern);
        }
        if activity::wanted(activity::MEMSET) && self.node_records_wanted(node) {
            let record = Activity {
                value: fill.pattern.value,
                bytes: fill.bytes,
                flags: u8::from(fill.asynchronous),
                source_kind: fill.memory_kind,
                ..self.record(activity::MEMSET, ids, start_ns, end_ns, correlation, node)
            };
            self.deliver(ids.context, record);
        }
        end_ns
    }
}
