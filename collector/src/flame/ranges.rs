//! Ranges as frames of a flamegraph, and where among the other frames they stand.

use rustc_hash::FxHashMap;

use crate::flame::frames::{Frame, FrameKind};
use crate::label::ProcessNames;

/// Where ranges stand among the frames of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RangePlace {
    /// Between the thread and the program's lines: time is divided by what the program says that it
    /// does, and then by lines.
    #[default]
    Above,
    /// Between the program's lines and the call: each line's time is divided by range.
    Below,
    /// In the place of the lines of whatever lies in a range; other calls keep theirs.
    Instead,
    /// Nowhere.
    None,
}

#[derive(Debug)]
pub(super) struct RangeFrames<'l, 'a> {
    processes: &'l ProcessNames<'a>,
    place: RangePlace,
    known: FxHashMap<(u32, u32), Vec<Frame>>,
}

impl<'l, 'a> RangeFrames<'l, 'a> {
    pub fn new(processes: &'l ProcessNames<'a>, place: RangePlace) -> RangeFrames<'l, 'a> {
        RangeFrames { processes, place, known: FxHashMap::default() }
    }

    /// Adds the frames between thread and call: those of the ranges and those of the code.
    pub fn among(&mut self, frames: &mut Vec<Frame>, code: &[Frame], process: u32, node: u32) {
        let place = if node == 0 { RangePlace::None } else { self.place };
        let ranges = match place {
            RangePlace::None => &[],
            _ => self.of(process, node),
        };
        let (first, second) = match place {
            RangePlace::Above => (ranges, code),
            RangePlace::Below => (code, ranges),
            RangePlace::Instead => (ranges, &[][..]),
            RangePlace::None => (code, &[][..]),
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
