//! The flamegraph: device time, or host time where there is none, by where it came from.
//!
//! Frames from the root: the bottom (process and thread, unless others are asked for), the program's
//! stack, the call, the kernel or copy. Owns folded lines and the SVG; opens no file.

mod bottom;
mod code;
mod folded;
mod frames;
mod graph;
mod ranges;
mod svg;

#[cfg(test)]
mod bottom_tests;
#[cfg(test)]
mod tests;

pub use bottom::{Bottom, Part};
pub use frames::{Frame, FrameKind};
pub use graph::{Flame, FlameLine};
pub use ranges::RangePlace;
