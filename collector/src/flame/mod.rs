//! The flamegraph: device time by the stack that caused it, or host time where no device time is known; the
//! time in which a device did nothing; memory.
//!
//! Frames from the root: process and thread (or what `--group-by` asks for), NVTX ranges, the program's
//! stack, the call, the kernel or copy. Owns folded lines and the SVG; opens no file.

mod bars;
mod code;
mod colours;
mod difference;
mod estimated;
mod folded;
mod frames;
mod graph;
mod group_by;
mod idle;
mod memory;
mod ranges;
mod stack_page;
mod svg;
mod tree;

#[cfg(test)]
mod group_by_tests;
#[cfg(test)]
mod tests;

pub use difference::{FlameDifference, NotComparable, SharedRoots};
pub(crate) use frames::entry_name;
pub use frames::{Frame, FrameKind};
pub use graph::{Flame, FlameLine, FlameWeight};
pub use group_by::{GroupBy, GroupKey};
pub use memory::MemoryWeight;
pub use ranges::RangePosition;
pub use stack_page::StackPage;
