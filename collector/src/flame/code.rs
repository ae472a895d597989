//! The frames of the program's stack in a flamegraph: `train_step train.py:22`.

use rustc_hash::FxHashMap;

use crate::flame::frames::{Frame, FrameKind};
use crate::label::{StackFrame, StackNames};

#[derive(Debug)]
pub(super) struct CodeFrames<'l, 'a> {
    stacks: &'l mut StackNames<'a>,
    /// Frames made so far, so that stacks share their texts: most stacks differ in few frames.
    known: FxHashMap<StackFrame, Frame>,
    /// The stack asked for last: neighbours in sorted order often have the same.
    last: (u32, u32),
    frames: Vec<Frame>,
}

impl<'l, 'a> CodeFrames<'l, 'a> {
    pub fn new(stacks: &'l mut StackNames<'a>) -> CodeFrames<'l, 'a> {
        CodeFrames { stacks, known: FxHashMap::default(), last: (0, 0), frames: Vec::new() }
    }

    /// A stack's frames, outermost first. Stack 0 has none.
    pub fn of(&mut self, process: u32, stack: u32) -> &[Frame] {
        if self.last != (process, stack) {
            self.last = (process, stack);
            let frames = self.stacks.frames(process, stack).into_iter();
            let (known, stacks) = (&mut self.known, &self.stacks);
            self.frames = frames
                .map(|frame| {
                    let made = || {
                        let kind = match (&frame, stacks.line(&frame)) {
                            (StackFrame::Truncated | StackFrame::Missing(_), _) => FrameKind::Other,
                            (_, Some(line)) if line.own => FrameKind::Code,
                            _ => FrameKind::Library,
                        };
                        Frame::new(kind, &stacks.text(&frame))
                    };
                    known.entry(frame.clone()).or_insert_with(made).clone()
                })
                .collect();
        }
        &self.frames
    }
}
