//! The frames of the program's stack in a flamegraph: `train_step train.py:22`.

use rustc_hash::FxHashMap;

use crate::flame::frames::{Frame, FrameKind};
use crate::label::{StackFrame, StackNames, is_backward, modules};

#[derive(Debug)]
pub(super) struct CodeFrames<'l, 'a> {
    stacks: &'l mut StackNames<'a>,
    /// Whether the modules that a stack is inside of are frames of their own, before all others.
    by_module: bool,
    /// Frames made so far, so that stacks share their texts: most stacks differ in few frames.
    known: FxHashMap<StackFrame, Frame>,
    /// The stack asked for last: neighbours in sorted order often have the same.
    last: (u32, u32),
    modules: Vec<Frame>,
    frames: Vec<Frame>,
}

impl<'l, 'a> CodeFrames<'l, 'a> {
    pub fn new(stacks: &'l mut StackNames<'a>) -> CodeFrames<'l, 'a> {
        let (known, modules, frames) = (FxHashMap::default(), Vec::new(), Vec::new());
        CodeFrames { stacks, by_module: false, known, last: (0, 0), modules, frames }
    }

    /// The same, with the modules as frames of their own.
    pub fn by_module(stacks: &'l mut StackNames<'a>) -> CodeFrames<'l, 'a> {
        CodeFrames { by_module: true, ..CodeFrames::new(stacks) }
    }

    /// The modules that a stack is inside of, outermost first.
    pub fn modules(&mut self, process: u32, stack: u32) -> &[Frame] {
        if self.by_module {
            self.look_up(process, stack);
        }
        &self.modules
    }

    /// A stack's frames, outermost first, without those that called the innermost module where modules are
    /// frames of their own. Stack 0 has none.
    pub fn of(&mut self, process: u32, stack: u32) -> &[Frame] {
        self.look_up(process, stack);
        &self.frames
    }

    fn look_up(&mut self, process: u32, stack: u32) {
        if self.last == (process, stack) && stack != 0 {
            return;
        }
        self.last = (process, stack);
        let mut frames = self.stacks.frames(process, stack);
        let (known, stacks) = (&mut self.known, &self.stacks);
        if self.by_module {
            let module = |class: &str| Frame::new(FrameKind::Module, class);
            let found = modules(stacks, &frames);
            self.modules = found.iter().map(|inside| module(inside.class)).collect();
            match found.last() {
                Some(innermost) => drop(frames.drain(..innermost.at)),
                None if is_backward(&frames) => self.modules = vec![module("(backward pass)")],
                None => self.modules = vec![module("(no module)")],
            }
        }
        let frame = |frame: StackFrame| {
            let made = || {
                let kind = match (&frame, stacks.line(&frame)) {
                    (StackFrame::Truncated | StackFrame::Missing(_), _) => FrameKind::Other,
                    (_, Some(line)) if line.own => FrameKind::Code,
                    _ => FrameKind::Library,
                };
                Frame::new(kind, &stacks.text(&frame))
            };
            known.entry(frame.clone()).or_insert_with(made).clone()
        };
        self.frames = frames.into_iter().map(frame).collect();
    }
}
