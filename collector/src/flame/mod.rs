//! The flamegraph: device time, or host time where there is none, by where it came from.
//!
//! Frames from the root: process, thread, the program's stack, the call, the kernel or copy. Owns
//! folded lines and the SVG; opens no file.

mod code;
mod folded;
mod frames;
mod graph;
mod ranges;
mod svg;

#[cfg(test)]
mod tests;

pub use frames::{Frame, FrameKind};
pub use graph::{Flame, FlameLine};
pub use ranges::RangePlace;
