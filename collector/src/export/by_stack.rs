//! Calls and operations summed by stack, and the frames of those stacks: for formats that show stacks.
//!
//! Sums what the format gets, not the report's sums: a filter may have left out a part.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::aggregate::{Leaf, NO_DEVICE, Owner, StackKey, Stacks};
use crate::export::{Event, Trace};
use crate::flame::entry_name;
use crate::label::NO_LINE;
use crate::memory::{BLOCK, NAMES};
use crate::model::definitions::{Definitions, UNKNOWN_CALL};
use crate::model::operation::What;
use crate::names::line_safe;

/// The sums, in bounded memory.
#[derive(Debug, Default)]
pub struct ByStack {
    /// Operations and their device time.
    pub device: Stacks,
    /// Calls and their host time.
    pub host: Stacks,
    /// Bytes of copies and memsets, as the weight.
    pub bytes: Stacks,
    /// Operations whose device time is not known.
    pub untimed: u64,
}

impl ByStack {
    /// Adds a call or an operation. Other events have no weight.
    pub fn add(&mut self, event: &Event<'_>) {
        match event {
            Event::Call(call, definitions) => {
                let key = StackKey { leaf: Leaf::Call, ..StackKey::of_call(call, definitions) };
                self.host.add(key, Some(call.duration_ns));
            }
            Event::Operation(operation, _) => {
                let key = StackKey::of_operation(operation);
                self.device.add(key, operation.timing.map(|timing| timing.duration_ns));
                self.untimed += u64::from(operation.timing.is_none());
                if let What::Copy { bytes, .. } | What::Fill { bytes } = operation.what {
                    self.bytes.add(key, Some(bytes));
                }
            }
            _ => {}
        }
    }

    /// What the sums lack, a line each.
    pub fn losses(&self) -> Vec<String> {
        let untimed =
            (self.untimed > 0).then(|| format!("operations without a device time: {}", self.untimed));
        let beyond = |what: &str, stacks: &Stacks| {
            let count = stacks.beyond().count;
            (count > 0).then(|| format!("{what} without their stack, because there are too many: {count}"))
        };
        let beyond = [beyond("operations", &self.device), beyond("calls", &self.host)];
        untimed.into_iter().chain(beyond.into_iter().flatten()).collect()
    }
}

/// A frame as viewers show it: a function's line, a call, a kernel, a process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ViewerFrame {
    pub name: Arc<str>,
    /// Empty if it is not known.
    pub path: Arc<str>,
    /// 0 if it is not known.
    pub line: u32,
}

impl ViewerFrame {
    /// A frame without a line.
    pub fn named(name: &str) -> ViewerFrame {
        ViewerFrame::at(name, "", 0)
    }

    /// Control characters in the texts are written out: viewers print them to terminals too.
    fn at(name: &str, path: &str, line: u32) -> ViewerFrame {
        let name = if name.is_empty() { "(empty)" } else { name };
        ViewerFrame { name: line_safe(name).into(), path: line_safe(path).into(), line }
    }
}

/// The frames of an output, each with a number.
#[derive(Debug, Default)]
pub struct FrameNumbers {
    numbers: FxHashMap<ViewerFrame, usize>,
    frames: Vec<ViewerFrame>,
}

impl FrameNumbers {
    /// The number of a frame, from 0 on.
    pub fn of(&mut self, frame: ViewerFrame) -> usize {
        let next = self.frames.len();
        let number = *self.numbers.entry(frame.clone()).or_insert(next);
        if number == next {
            self.frames.push(frame);
        }
        number
    }

    /// By number.
    pub fn all(&self) -> &[ViewerFrame] {
        &self.frames
    }
}

/// The names of the thread that a stack belongs to: its process, and the thread or what is known instead.
pub fn thread_names(trace: &Trace<'_>, key: &StackKey) -> [Arc<str>; 2] {
    let thread = match has_call(key) {
        _ if key.leaf == Leaf::Other => "(other)".into(),
        true => trace.thread_name(key.process, key.thread),
        false => "(no host call)".into(),
    };
    [trace.process_name(key.process), thread]
}

/// The ranges that were open, outermost first.
pub fn range_names(trace: &Trace<'_>, key: &StackKey) -> Vec<String> {
    let process = trace.process(key.process).filter(|_| has_call(key));
    let names = process.into_iter().flat_map(|process| process.ranges.names(key.ranges));
    names.map(|name| name.text()).collect()
}

/// The program's frames, outermost first.
fn frames_of_stack(trace: &mut Trace<'_>, process: u32, stack: u32) -> Vec<ViewerFrame> {
    let stacks = &mut trace.labels.stacks;
    let frames = stacks.frames(process, stack).into_iter();
    let named = frames.map(|frame| match stacks.line(&frame) {
        Some(line) if line.line == NO_LINE => ViewerFrame::at(&line.function, &line.path, 0),
        Some(line) => ViewerFrame::at(&line.function, &line.path, line.line),
        None => ViewerFrame::named(&stacks.text(&frame)),
    });
    named.collect()
}

/// The program's frames, the call, and what was executed, outermost first.
pub fn frames(trace: &mut Trace<'_>, key: &StackKey) -> Vec<ViewerFrame> {
    let mut frames = Vec::new();
    if has_call(key) {
        frames = frames_of_stack(trace, key.process, key.stack);
        if key.owner == Owner::Replay {
            frames.push(ViewerFrame::named("[graph replay]"));
        }
        let definitions = trace.labels.processes.definitions(key.process);
        frames.push(ViewerFrame::named(call_name(definitions, key.api)));
    }
    if key.leaf != Leaf::Call {
        frames.push(leaf(trace, key));
    }
    frames
}

/// The program's frames, the call, and the kind of memory of a place that allocated, outermost first.
pub fn frames_of_memory(
    trace: &mut Trace<'_>,
    process: u32,
    [stack, api]: [u32; 2],
    kind: usize,
) -> Vec<ViewerFrame> {
    let key = StackKey {
        process,
        thread: 0,
        stack,
        ranges: 0,
        owner: Owner::default(),
        api,
        stream: 0,
        device: NO_DEVICE,
        leaf: Leaf::Call,
    };
    let mut frames = if kind == BLOCK { frames_of_stack(trace, process, stack) } else { frames(trace, &key) };
    frames.push(ViewerFrame::named(NAMES.get(kind).copied().unwrap_or("unknown")));
    frames
}

/// What was executed. A kernel has its source line, if all kernels of that name have the same.
pub fn leaf(trace: &mut Trace<'_>, key: &StackKey) -> ViewerFrame {
    let name = trace.leaf_name(key);
    let source = match key.leaf {
        Leaf::Kernel(kernel) => trace.labels.kernels.sources(key.process, kernel).only(),
        _ => None,
    };
    match source {
        Some(source) => ViewerFrame::at(&name, &source.path, source.line),
        None => ViewerFrame::named(&name),
    }
}

fn call_name(definitions: Option<&Definitions>, api: u32) -> &str {
    definitions.map_or(UNKNOWN_CALL, |definitions| entry_name(definitions.call_name(api)))
}

/// Whether the host call is known.
fn has_call(key: &StackKey) -> bool {
    key.api != 0 || key.thread != 0
}
