//! NVTX ranges as frames of a flamegraph, and their position among the other frames.

use rustc_hash::FxHashMap;

use crate::flame::frames::{Frame, FrameKind};
use crate::label::ProcessNames;

/// The position of ranges among the frames of a call (`--nvtx-frames`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RangePosition {
    /// Between the thread and the program's lines: time is divided by range, then by line.
    #[default]
    Above,
    /// Between the program's lines and the call: time is divided by line, then by range.
    Below,
    /// Instead of the lines, for calls inside a range. Other calls keep their lines.
    Instead,
    /// Ranges are not shown.
    None,
}

#[derive(Debug)]
pub(super) struct RangeFrames<'l, 'a> {
    processes: &'l ProcessNames<'a>,
    position: RangePosition,
    known: FxHashMap<(u32, u32), Vec<Frame>>,
}

impl<'l, 'a> RangeFrames<'l, 'a> {
    pub fn new(processes: &'l ProcessNames<'a>, position: RangePosition) -> RangeFrames<'l, 'a> {
        RangeFrames { processes, position, known: FxHashMap::default() }
    }

    /// Appends the frames between thread and call: ranges and program lines, in the order that the position
    /// asks for.
    pub fn among(&mut self, frames: &mut Vec<Frame>, code: &[Frame], process: u32, node: u32) {
        let position = if node == 0 { RangePosition::None } else { self.position };
        let ranges = match position {
            RangePosition::None => &[],
            _ => self.of(process, node),
        };
        let (first, second) = match position {
            RangePosition::Above => (ranges, code),
            RangePosition::Below => (code, ranges),
            RangePosition::Instead => (ranges, &[][..]),
            RangePosition::None => (code, &[][..]),
        };
        frames.extend_from_slice(first);
        frames.extend_from_slice(second);
    }

    fn of(&mut self, process: u32, node: u32) -> &[Frame] {
        self.known.entry((process, node)).or_insert_with(|| {
            let names = self.processes.process(process).map(|process| process.ranges.names(node));
            names.into_iter().flatten().map(|name| Frame::new(FrameKind::Range, &name.text())).collect()
        })
    }
}
