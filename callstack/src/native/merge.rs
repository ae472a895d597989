//! RemainingFrames and Python frames in one order.
//!
//! Python's frames replace the interpreter's own native frames, which are left out. A run is a group of
//! Python frames that the interpreter runs without another C call in between. The interpreter's function
//! that runs frames is on the native stack once for each run, so runs show which native frames are
//! between Python's.
//!
//! * From 3.12 a run ends with a frame of the interpreter's own in that function's part of the C stack:
//!   its address separates the native frames inside the run from the others.
//! * Before that, runs are counted: each frame is a run (up to 3.10), or the frames between two that are
//!   marked (3.11). If the function is not found as often as there are runs, only the innermost native
//!   frames are kept, up to the interpreter's.

use super::frames::NativeFrame;
use super::walk::End;

/// The boundary between a Python frame and its caller, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameBoundary(u64);

impl FrameBoundary {
    /// Both frames belong to one run.
    pub const NONE: FrameBoundary = FrameBoundary(0);
    /// They belong to different runs.
    pub const UNPLACED: FrameBoundary = FrameBoundary(1);

    /// They belong to different runs, and the interpreter has a frame at this address; 0 if it has none.
    pub fn at(address: u64) -> FrameBoundary {
        if address == 0 { FrameBoundary::UNPLACED } else { FrameBoundary(address) }
    }

    fn address(self) -> Option<u64> {
        Some(self.0).filter(|address| *address > 1)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PythonFrame {
    pub code: u32,
    pub at: u64,
    pub entry: FrameBoundary,
}

/// How the Python frames end, at the outer end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outermost {
    Whole,
    /// There are more frames than are kept.
    Cut,
    /// Another stack contains the frames further out, and also the native frames beyond the next one of the
    /// interpreter.
    Elsewhere,
}

/// Passes all frames in order to `put`, as pairs of a stack, innermost first. The pair (0, 0) marks missing
/// frames.
pub fn merge(
    (native, end): (&[NativeFrame], End),
    (python, outermost): (&[PythonFrame], Outermost),
    mut put: impl FnMut(u32, u64),
) {
    let mut rest = RemainingFrames { frames: native, is_lost: end != End::Outermost };
    let by_address = python.iter().any(|frame| frame.entry.address().is_some());
    let runs = python.iter().filter(|frame| frame.entry != FrameBoundary::NONE).count();
    let found = native.iter().filter(|frame| frame.is_evaluation()).count();
    let is_counted = match outermost {
        Outermost::Whole => found == runs || rest.is_lost && found < runs,
        Outermost::Cut | Outermost::Elsewhere => found >= runs || rest.is_lost,
    };
    let mut begins = true;
    for (index, frame) in python.iter().enumerate() {
        if begins {
            let entry = python
                .iter()
                .skip(index)
                .map(|frame| frame.entry)
                .find(|entry| *entry != FrameBoundary::NONE);
            match entry.map(FrameBoundary::address) {
                Some(Some(at)) => rest.up_to(|frame| frame.end > at, &mut put),
                Some(None) if is_counted && !by_address => {
                    rest.up_to(NativeFrame::is_evaluation, &mut put);
                    rest.skip();
                }
                // The beginning of this run is unknown: only the frames inside all runs are kept.
                _ => {
                    if index == 0 {
                        rest.up_to(NativeFrame::is_of_interpreter, &mut put);
                    }
                    rest = RemainingFrames { frames: &[], is_lost: false };
                }
            }
        }
        put(frame.code, frame.at);
        begins = frame.entry != FrameBoundary::NONE;
    }
    match outermost {
        Outermost::Whole => rest.up_to(|_| false, &mut put),
        Outermost::Cut => put(0, 0),
        Outermost::Elsewhere => {
            // The remaining frames of the last run, and then those inside the next run.
            while !python.is_empty() && rest.frames.first().is_some_and(NativeFrame::is_of_interpreter) {
                rest.skip();
            }
            rest.up_to(NativeFrame::is_of_interpreter, &mut put);
        }
    }
}

/// The remaining native frames.
struct RemainingFrames<'f> {
    frames: &'f [NativeFrame],
    /// Whether frames are missing at the end.
    is_lost: bool,
}

impl RemainingFrames<'_> {
    /// Passes the frames inside the first one for which `beyond` is true.
    fn up_to(&mut self, beyond: impl Fn(&NativeFrame) -> bool, put: &mut impl FnMut(u32, u64)) {
        while let Some((frame, rest)) = self.frames.split_first() {
            if beyond(frame) {
                return;
            }
            // Code of no image ends a walk, and the mark at the end stands for it.
            if frame.is_shown() && (frame.image != 0 || frame.at != 0) {
                put(frame.image, frame.at);
            }
            self.frames = rest;
        }
        self.end(put);
    }

    fn skip(&mut self) {
        self.frames = self.frames.split_first().map_or(&[], |(_, rest)| rest);
    }

    /// All frames were passed: puts the mark, once, if others are missing.
    fn end(&mut self, put: &mut impl FnMut(u32, u64)) {
        if self.frames.is_empty() && core::mem::take(&mut self.is_lost) {
            put(0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::{EVALUATION, INTERPRETER, OWN};
    use super::*;

    const EVAL: u64 = INTERPRETER | EVALUATION;

    /// Frames of 16 bytes each, the innermost at 0.
    fn native(flags: &[u64]) -> Vec<NativeFrame> {
        let frames = flags.iter().zip(1u64..);
        frames.map(|(flags, at)| NativeFrame { image: 1, flags: *flags, at, end: at * 16 }).collect()
    }

    fn python(entries: &[FrameBoundary]) -> Vec<PythonFrame> {
        let frames = entries.iter().zip(1u64..);
        frames.map(|(entry, at)| PythonFrame { code: 2, at, entry: *entry }).collect()
    }

    /// `n3` for the third native frame, `p1` for the first Python frame, `?` for a mark.
    fn merged(native: &[NativeFrame], end: End, entries: &[FrameBoundary], outermost: Outermost) -> String {
        let mut said = Vec::new();
        merge((native, end), (&python(entries), outermost), |definition, at| {
            said.push(match definition {
                0 => "?".to_owned(),
                1 => format!("n{at}"),
                _ => format!("p{at}"),
            });
        });
        said.join(" ")
    }

    #[test]
    fn native_frames_alone_are_as_they_are() {
        let frames = native(&[OWN, 0, 0, INTERPRETER, 0]);
        assert_eq!(merged(&frames, End::Outermost, &[], Outermost::Whole), "n2 n3 n5");
        assert_eq!(merged(&frames, End::Lost, &[], Outermost::Whole), "n2 n3 n5 ?");
        assert_eq!(merged(&[], End::Lost, &[], Outermost::Whole), "?");
    }

    #[test]
    fn python_frames_alone_are_as_they_are() {
        let entries = [FrameBoundary::NONE, FrameBoundary::at(100), FrameBoundary::UNPLACED];
        assert_eq!(merged(&[], End::Outermost, &entries, Outermost::Whole), "p1 p2 p3");
        assert_eq!(merged(&[], End::Outermost, &entries, Outermost::Cut), "p1 p2 p3 ?");
    }

    #[test]
    fn runs_are_placed_by_what_lies_on_the_c_stack() {
        // ours, extension, [call, eval], callback, [call, eval], main
        let frames = native(&[OWN, 0, INTERPRETER, INTERPRETER, 0, INTERPRETER, INTERPRETER, 0]);
        let entries = [
            FrameBoundary::NONE,
            FrameBoundary::at(3 * 16 + 8),
            FrameBoundary::NONE,
            FrameBoundary::at(6 * 16 + 8),
        ];
        assert_eq!(merged(&frames, End::Outermost, &entries, Outermost::Whole), "n2 p1 p2 n5 p3 p4 n8");
        assert_eq!(merged(&frames[..5], End::Lost, &entries, Outermost::Whole), "n2 p1 p2 n5 ? p3 p4");
        assert_eq!(merged(&frames, End::Outermost, &entries[..3], Outermost::Cut), "n2 p1 p2 p3 ?");
        // A C call between two of the interpreter's functions that ran no frame.
        let frames = native(&[OWN, 0, INTERPRETER, 0, INTERPRETER, INTERPRETER, 0]);
        assert_eq!(
            merged(&frames, End::Outermost, &[FrameBoundary::at(5 * 16 + 8)], Outermost::Whole),
            "n2 n4 p1 n7"
        );
    }

    #[test]
    fn runs_are_counted_where_nothing_lies_on_the_c_stack() {
        let frames = native(&[OWN, 0, INTERPRETER, EVAL, INTERPRETER, EVAL, 0, EVAL, INTERPRETER, 0]);
        let each = [FrameBoundary::UNPLACED; 3];
        assert_eq!(merged(&frames, End::Outermost, &each, Outermost::Whole), "n2 p1 p2 n7 p3 n10");
        let marked = [
            FrameBoundary::NONE,
            FrameBoundary::UNPLACED,
            FrameBoundary::UNPLACED,
            FrameBoundary::NONE,
            FrameBoundary::UNPLACED,
        ];
        assert_eq!(merged(&frames, End::Outermost, &marked, Outermost::Whole), "n2 p1 p2 p3 n7 p4 p5 n10");
    }

    #[test]
    fn innermost_frames_are_kept_where_runs_cannot_be_placed() {
        let frames = native(&[OWN, 0, 0, INTERPRETER, EVAL, 0, INTERPRETER, INTERPRETER, 0]);
        let each = [FrameBoundary::UNPLACED; 2];
        assert_eq!(merged(&frames, End::Outermost, &each, Outermost::Whole), "n2 n3 p1 p2");
        // The walk ended before the other frames: those found are in order.
        assert_eq!(merged(&frames[..6], End::Cut, &each, Outermost::Whole), "n2 n3 p1 n6 ? p2");
        assert_eq!(merged(&frames, End::Outermost, &[FrameBoundary::NONE], Outermost::Cut), "n2 n3 p1 ?");
    }

    #[test]
    fn frames_of_another_stack_are_left_out() {
        // kernels, [eval], engine, [call, eval], main
        let frames = native(&[OWN, 0, EVAL, INTERPRETER, 0, 0, INTERPRETER, EVAL, 0]);
        assert_eq!(merged(&frames, End::Outermost, &[], Outermost::Elsewhere), "n2");
        let inside = [FrameBoundary::UNPLACED];
        assert_eq!(merged(&frames, End::Outermost, &inside, Outermost::Elsewhere), "n2 p1 n5 n6");
        let placed = [FrameBoundary::NONE, FrameBoundary::at(2 * 16 + 8)];
        assert_eq!(merged(&frames, End::Outermost, &placed, Outermost::Elsewhere), "n2 p1 p2 n5 n6");
    }
}
