//! The program's frames in a flamegraph: `train_step train.py:22`.

use rustc_hash::FxHashMap;

use crate::flame::frames::{Frame, FrameKind};
use crate::model::Totals;
use crate::source::{StackFrame, Stacks};

#[derive(Debug)]
pub(super) struct CodeFrames<'a> {
    stacks: Stacks<'a>,
    /// Texts are shared: a thousand stacks have few frames that no other has.
    known: FxHashMap<StackFrame, Frame>,
    /// The stack that was asked for last, mostly the next one too.
    last: (u32, u32),
    frames: Vec<Frame>,
}

impl<'a> CodeFrames<'a> {
    pub fn new(totals: &'a Totals) -> CodeFrames<'a> {
        let (known, frames) = (FxHashMap::default(), Vec::new());
        CodeFrames { stacks: Stacks::new(totals), known, last: (0, 0), frames }
    }

    /// A stack's frames, outermost first; none of stack 0.
    pub fn of(&mut self, process: u32, stack: u32) -> &[Frame] {
        if self.last != (process, stack) {
            self.last = (process, stack);
            let frames = self.stacks.frames(process, stack).into_iter();
            let known = &mut self.known;
            self.frames = frames
                .map(|frame| {
                    let kind = match &frame {
                        StackFrame::Line(line) if line.own => FrameKind::Code,
                        StackFrame::Line(_) | StackFrame::Named(_) => FrameKind::Library,
                        StackFrame::Truncated | StackFrame::Missing(_) => FrameKind::Other,
                    };
                    let text = frame.text();
                    known.entry(frame).or_insert_with(|| Frame::new(kind, &text)).clone()
                })
                .collect();
        }
        &self.frames
    }
}
