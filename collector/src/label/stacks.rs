//! Turns stack ids into the program's frames: function, file and line.
//!
//! Each code object and line is decoded once, when the first stack that has it is asked for. Each line has a
//! number, so that code which sums over many stacks compares numbers and not texts.

use std::sync::Arc;

use gputrace_wire::definition::stack::FRAMES_MAX;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::label::machinery::{self, FrameRole};
use crate::model::Totals;
use crate::model::definitions::Definitions;
use crate::names::readable;
use crate::source::{Code, FileNames, begin_of, is_made};
use crate::symbols::{NativeFrame, Natives};

/// The line number of a line that is unknown.
pub const NO_LINE: u32 = u32::MAX;

/// A line of a function. Where a function's lines are unknown, `file` is the program or library that contains
/// it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Line {
    pub function: Arc<str>,
    /// The file's short name, unique within the session.
    pub file: Arc<str>,
    /// The file as the compiler recorded it.
    pub path: Arc<str>,
    /// [`NO_LINE`] if it is unknown.
    pub line: u32,
    /// Whether the file is user code, and not a library's.
    pub own: bool,
}

/// A frame of a stack.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum StackFrame {
    /// The number of a line, for [`StackNames::line`]. Equal lines have equal numbers, in all processes.
    Line(usize),
    /// A frame that has a text and no line.
    Named(Arc<str>),
    /// Outer frames were not recorded, because the stack was too deep.
    Truncated,
    /// This many frames are unknown; 0 if they were not counted.
    Missing(u64),
}

impl Line {
    fn of(code: &Code, line: u32) -> Line {
        Line {
            function: code.function.clone(),
            file: code.file.clone(),
            path: code.path.clone(),
            line,
            own: code.own,
        }
    }

    /// Whether the user wrote the line, in a file or at a prompt. False for code from a string, which a
    /// library may have generated.
    pub fn is_written(&self) -> bool {
        self.own && !is_made(&self.path)
    }

    /// `train_step train.py:22`.
    pub fn text(&self) -> String {
        match self.line {
            NO_LINE => format!("{} {}", self.function, self.file),
            line => format!("{} {}:{line}", self.function, self.file),
        }
    }
}

/// The frames of the stacks of an analysis's processes.
#[derive(Debug)]
pub struct StackNames<'a> {
    processes: FxHashMap<u32, &'a Definitions>,
    files: FileNames,
    codes: FxHashMap<(u32, u32), Option<Code>>,
    /// Numbers of lines by process, code object and line.
    of_codes: FxHashMap<(u32, u32, u32), usize>,
    natives: Natives,
    lines: Vec<Line>,
    numbers: FxHashMap<Line, usize>,
    /// The roles of the first of `lines`, by number; the rest is filled in when needed.
    roles: Vec<FrameRole>,
    /// How many bytes of line tables may still be decoded. In a valid trace each piece belongs to one table,
    /// so the definitions' sizes suffice. The limit bounds the work for a trace whose tables share pieces.
    table_bytes_left: usize,
}

impl<'a> StackNames<'a> {
    pub fn new(totals: &'a Totals) -> StackNames<'a> {
        let processes = totals.processes.iter().map(|process| (process.number, &process.definitions));
        StackNames::of(processes.collect(), Natives::new(totals))
    }

    /// The frames of one process that runs. Native frames have no names yet: symbols are read at the end.
    pub fn of_running(process: u32, definitions: &'a Definitions) -> StackNames<'a> {
        StackNames::of(FxHashMap::from_iter([(process, definitions)]), Natives::default())
    }

    fn of(processes: FxHashMap<u32, &'a Definitions>, natives: Natives) -> StackNames<'a> {
        // Short names depend on all defined files, not on the stacks asked for: every output shows the same
        // names.
        let mut paths: FxHashMap<&[u8], Arc<str>> = FxHashMap::default();
        for (_, code) in processes.values().flat_map(|definitions| definitions.codes()) {
            paths.entry(code.file).or_insert_with(|| readable(code.file));
        }
        let sources: FxHashSet<&str> = natives.files().collect();
        StackNames {
            files: FileNames::new(paths.into_values().chain(sources.into_iter().map(Arc::from))),
            natives,
            codes: FxHashMap::default(),
            of_codes: FxHashMap::default(),
            lines: Vec::new(),
            numbers: FxHashMap::default(),
            roles: Vec::new(),
            table_bytes_left: processes.values().map(|definitions| definitions.code_bytes()).sum(),
            processes,
        }
    }

    /// A stack's frames, outermost first. Stack 0 has none.
    pub fn frames(&mut self, process: u32, stack: u32) -> Vec<StackFrame> {
        let frames = self.recorded(process, stack, true);
        self.with_machinery_folded(frames)
    }

    /// The frames as they were recorded, with those of its forward pass or without.
    fn recorded(&mut self, process: u32, stack: u32, mut with_forward: bool) -> Vec<StackFrame> {
        if stack == 0 {
            return Vec::new();
        }
        let Some(definitions) = self.processes.get(&process).copied() else { return Vec::new() };
        let Some((outer, own)) = begin_of(definitions, stack) else { return Vec::new() };
        // A stack may begin with the frames of another. That one has a lower number, so the loop ends.
        let (mut outer, mut kept) = (outer, own.len());
        let mut parts = vec![own];
        while outer != 0 && kept < FRAMES_MAX {
            let Some((next, part)) = begin_of(definitions, outer) else { break };
            kept += part.len();
            parts.push(part);
            outer = next;
        }
        let mut frames = Vec::with_capacity(kept.min(FRAMES_MAX) + 1);
        for part in parts.iter().rev() {
            // Leave out the frames of thread and process start: they are not the program's work.
            let mut begins = true;
            for (index, (code, at)) in part.iter().enumerate() {
                if let Some(native) = self.natives.frame(process, *code, *at).cloned() {
                    begins &= native.begins;
                    if !begins {
                        self.native(&native, &mut frames);
                    }
                    continue;
                }
                if with_forward && let Some(between) = forward_of(definitions, stack, (*code, *at)) {
                    with_forward = false;
                    self.add_forward(process, between, &mut frames);
                    continue;
                }
                let frame = self.frame(process, definitions, index, *code, *at);
                begins &= matches!(frame, StackFrame::Named(_));
                frames.push(frame);
            }
        }
        if outer != 0 || frames.len() > FRAMES_MAX {
            // Keep the innermost frames.
            frames.drain(..frames.len().saturating_sub(FRAMES_MAX - 1));
            frames.insert(0, StackFrame::Truncated);
        }
        frames
    }

    /// Adds the frames that begin both stacks of a forward pass, without those that `frames` begins with.
    fn add_forward(&mut self, process: u32, [before, after]: [u32; 2], frames: &mut Vec<StackFrame>) {
        let mut forward = self.recorded(process, before, false);
        if after != before {
            let after = self.recorded(process, after, false);
            forward.truncate(forward.iter().zip(&after).take_while(|(one, other)| one == other).count());
        }
        let known = forward.iter().zip(&*frames).take_while(|(one, other)| one == other).count();
        frames.extend(forward.into_iter().skip(known));
    }

    /// Replaces each run of frames that are the same in all programs by one frame.
    fn with_machinery_folded(&mut self, mut frames: Vec<StackFrame>) -> Vec<StackFrame> {
        let unknown = self.lines.get(self.roles.len()..).unwrap_or_default();
        self.roles.extend(unknown.iter().map(|line| machinery::role(&line.path, &line.function)));
        let roles = frames.iter().map(|frame| match frame {
            StackFrame::Line(number) => self.roles.get(*number).copied().unwrap_or(FrameRole::Other),
            StackFrame::Named(text) if &**text == machinery::AUTOGRAD => {
                FrameRole::Machinery(machinery::AUTOGRAD)
            }
            _ => FrameRole::Other,
        });
        for (run, text) in machinery::runs(&roles.collect::<Vec<_>>()).into_iter().rev() {
            frames.splice(run, [StackFrame::Named(text.into())]);
        }
        frames
    }

    /// Adds the functions at a native address: more than one where calls were inlined.
    fn native(&mut self, native: &NativeFrame, frames: &mut Vec<StackFrame>) {
        for function in &native.functions {
            let unnamed = || format!("[{}+{:#x}]", native.file, native.address);
            let name = function.name.clone().unwrap_or_else(unnamed);
            frames.push(match &function.file {
                None if function.name.is_none() => StackFrame::Named(name.into()),
                None => StackFrame::Line(self.number(Line {
                    function: name.into(),
                    file: native.file.clone(),
                    path: native.image.clone(),
                    line: NO_LINE,
                    own: native.own,
                })),
                Some(path) => {
                    let (own, line) = (native.is_own_file(path), function.line);
                    let path: Arc<str> = path.as_str().into();
                    let file = self.files.name(&path);
                    StackFrame::Line(self.number(Line { function: name.into(), file, path, line, own }))
                }
            });
        }
    }

    /// The number of a line, a new one if the line is new.
    fn number(&mut self, line: Line) -> usize {
        let number = *self.numbers.entry(line.clone()).or_insert(self.lines.len());
        if number == self.lines.len() {
            self.lines.push(line);
        }
        number
    }

    /// Notices about native frames without names.
    pub fn notices(&self) -> Vec<String> {
        self.natives.notices()
    }

    fn frame(
        &mut self,
        process: u32,
        definitions: &Definitions,
        index: usize,
        id: u32,
        at: u64,
    ) -> StackFrame {
        match (id, index, at) {
            (0, 0, 0) => return StackFrame::Truncated,
            (0, _, missing) => return StackFrame::Missing(missing),
            _ => {}
        }
        let left = &mut self.table_bytes_left;
        let files = &self.files;
        let code =
            self.codes.entry((process, id)).or_insert_with(|| Code::read(definitions, files, id, left));
        let Some(code) = code else {
            return match definitions.text(id) {
                "" => StackFrame::Missing(1),
                text => StackFrame::Named(text.into()),
            };
        };
        let line = code.line(at);
        let known = (process, id, line);
        if let Some(number) = self.of_codes.get(&known) {
            return StackFrame::Line(*number);
        }
        let whole = Line::of(code, line);
        let number = self.number(whole);
        self.of_codes.insert(known, number);
        StackFrame::Line(number)
    }

    /// A frame's line, if it is known.
    pub fn line(&self, frame: &StackFrame) -> Option<&Line> {
        match frame {
            StackFrame::Line(number) => self.lines.get(*number),
            _ => None,
        }
    }

    /// The frame that a stack's operations are charged to: the innermost of user code, or the innermost if
    /// there is none. A `<string>` counts as user code only if there is no other.
    pub fn charged<'f>(&self, frames: &'f [StackFrame]) -> Option<&'f StackFrame> {
        let innermost =
            |is: &dyn Fn(&Line) -> bool| frames.iter().rev().find(|frame| self.line(frame).is_some_and(is));
        innermost(&Line::is_written).or_else(|| innermost(&|line| line.own)).or_else(|| innermost(&|_| true))
    }

    /// The text of the line that a stack's operations are charged to.
    pub fn charged_line(&mut self, process: u32, stack: u32) -> Option<String> {
        let frames = self.frames(process, stack);
        Some(self.text(self.charged(&frames)?))
    }

    /// A frame as one line of text.
    pub fn text(&self, frame: &StackFrame) -> String {
        match frame {
            StackFrame::Line(_) => self.line(frame).map_or_else(String::new, Line::text),
            StackFrame::Named(text) => text.to_string(),
            StackFrame::Truncated => "[truncated]".to_owned(),
            StackFrame::Missing(0) => "[frames missing]".to_owned(),
            StackFrame::Missing(1) => "[frame missing]".to_owned(),
            StackFrame::Missing(count) => format!("[{count} frames missing]"),
        }
    }
}

/// The stacks that a pair of this stack names, if it names the forward pass.
fn forward_of(definitions: &Definitions, stack: u32, (before, after): (u32, u64)) -> Option<[u32; 2]> {
    let is_earlier = |other: u32| other < stack && definitions.stack(other).next().is_some();
    let after = u32::try_from(after).ok().filter(|after| *after != 0 && is_earlier(*after))?;
    is_earlier(before).then_some([before, after])
}

#[cfg(test)]
mod tests {
    use gputrace_wire::definition::stack::NOT_BEGUN;
    use gputrace_wire::definition::{self, Code as CodeFields, kind, line_table};

    use super::*;
    use crate::batch::Definition;
    use crate::model::Process;

    #[derive(Default)]
    struct TestTrace(Totals);

    impl TestTrace {
        fn define(&mut self, kind: u16, id: u32, fields: &[u64], text: &[u8]) {
            if self.0.processes.is_empty() {
                self.0.processes.push(Process::default());
            }
            let record = Definition { kind, id, fields: fields.to_vec(), text: text.to_vec() };
            self.0.processes[0].definitions.add(&record);
        }

        /// A code object with the first piece of its line table.
        fn code(&mut self, id: u32, code: &CodeFields<'_>) {
            self.define(kind::CODE, id, &code.fields(), &[code.name, code.file, code.table].concat());
        }

        fn texts(&self, stack: u32) -> Vec<String> {
            let mut stacks = StackNames::new(&self.0);
            let frames = stacks.frames(0, stack);
            frames.iter().map(|frame| stacks.text(frame)).collect()
        }
    }

    /// A code object whose line table has `table_bytes` bytes: `table`, then the piece with definition
    /// `more`.
    fn code<'a>(table: &'a [u8], table_bytes: u64, more: u32) -> CodeFields<'a> {
        let (name, file) = (&b"f"[..], &b"f.py"[..]);
        let table_form = line_table::LNOTAB;
        CodeFields {
            first_line: 10,
            table_form,
            table_bytes,
            more,
            name,
            file,
            table,
            ..CodeFields::default()
        }
    }

    #[test]
    fn line_table_in_pieces_is_read_as_one() {
        let table: Vec<u8> = [2u8, 1].repeat(50);
        let mut trace = TestTrace::default();
        trace.define(kind::LINES, 1, &[0], &table[61..]);
        trace.define(kind::LINES, 2, &[1], &table[33..61]);
        trace.code(3, &code(&table[..33], 100, 2));
        // The same table with its last piece missing, and one in one piece.
        trace.define(kind::LINES, 4, &[77], &table[33..61]);
        trace.code(5, &code(&table[..33], 100, 4));
        trace.code(6, &code(&table, 100, 0));
        for at in [0, 40, 58, 60, 99, 100, 5_000] {
            let stack = 10 + at as u32;
            trace.define(kind::STACK, stack, &[3, at, 5, at, 6, at], b"");
            let texts = trace.texts(stack);
            let line = 10 + (at / 2).min(50);
            let cut = if at > 60 { 10 } else { line };
            assert_eq!(texts, [line, cut, line].map(|line| format!("f f.py:{line}")), "{at}");
        }
    }

    #[test]
    fn line_table_pieces_that_name_each_other_are_read_up_to_the_declared_size() {
        let mut trace = TestTrace::default();
        let piece = vec![1u8; definition::TEXT_MAX];
        trace.define(kind::LINES, 1, &[2], &piece);
        trace.define(kind::LINES, 2, &[1], &piece);
        trace.define(kind::LINES, 3, &[3], b"");
        for id in 10..200 {
            trace.code(id, &code(b"", u64::MAX, if id % 9 == 0 { 3 } else { 1 }));
            trace.define(kind::STACK, id + 1_000, &[id.into(), 4], b"");
        }
        let mut stacks = StackNames::new(&trace.0);
        let before = stacks.table_bytes_left;
        for id in 10..200 {
            assert_eq!(stacks.frames(0, id + 1_000).len(), 1);
        }
        let runs: usize = stacks.codes.values().flatten().map(|code| code.table.run_count()).sum();
        assert!(runs <= before + 190 * (definition::TEXT_MAX + 2), "{runs} of {before}");
    }

    #[test]
    fn compiler_frames_between_lines_become_one_frame() {
        let mut trace = TestTrace::default();
        let in_file = |file: &'static str| CodeFields { file: file.as_bytes(), ..code(b"", 0, 0) };
        for (id, file) in [(1, "train.py"), (2, "x/torch/_dynamo/a.py"), (3, "x/torch/nn/modules/module.py")]
        {
            trace.code(id, &in_file(file));
        }
        trace.code(4, &in_file("<eval_with_key>.1"));
        trace.define(kind::STACK, 10, &[1, 0, 2, 0, 3, 0, 2, 0, 1, 0, 2, 0, 4, 0], b"");
        let expected =
            ["f train.py:10", machinery::DYNAMO, "f train.py:10", "f a.py:10", "f <eval_with_key>.1:10"];
        assert_eq!(trace.texts(10), expected);
    }

    #[test]
    fn stack_that_begins_with_another_has_its_frames_first() {
        let mut trace = TestTrace::default();
        trace.code(3, &code(&[2, 1], 2, 0));
        trace.define(kind::NAME, 4, &[], b"[autograd]");
        trace.define(kind::STACK, 5, &[3, 0, 3, 2], b"");
        trace.define(kind::STACK, 6, &[5, 0, 4, 0], b"");
        trace.define(kind::STACK, 7, &[6, 0, 3, 0], b"");
        assert_eq!(trace.texts(6), ["f f.py:10", "f f.py:11", "[autograd]"]);
        assert_eq!(trace.texts(7), ["f f.py:10", "f f.py:11", "[autograd]", "f f.py:10"]);
        // Only at the beginning, and only a stack with a lower number.
        trace.define(kind::STACK, 8, &[3, 0, 5, 0], b"");
        trace.define(kind::STACK, 9, &[9, 0, 3, 0], b"");
        trace.define(kind::STACK, 10, &[11, 0, 3, 0], b"");
        trace.define(kind::STACK, 11, &[10, 0], b"");
        assert_eq!(trace.texts(8), ["f f.py:10", "[frame missing]"]);
        assert_eq!(trace.texts(9), ["[frame missing]", "f f.py:10"]);
        assert_eq!(trace.texts(10), ["[frame missing]", "f f.py:10"]);
        assert_eq!(trace.texts(11), ["[frame missing]", "f f.py:10"]);
    }

    #[test]
    fn forward_pass_is_what_its_two_stacks_share_and_the_caller_has_not() {
        let mut trace = TestTrace::default();
        trace.code(3, &code(&[2, 1, 2, 1, 2, 1, 2, 1], 8, 0));
        trace.define(kind::NAME, 4, &[], b"[autograd]");
        // At lines 10 to 13: the caller, and two calls of the forward pass.
        trace.define(kind::STACK, 5, &[3, 0, 3, 2], b"");
        trace.define(kind::STACK, 6, &[3, 0, 3, 4, 3, 6], b"");
        trace.define(kind::STACK, 7, &[3, 0, 3, 4, 3, 0, 3, 0], b"");
        let (outer, caller) = ("f f.py:10", "f f.py:11");
        trace.define(kind::STACK, 8, &[5, 0, 4, 0, 6, 6, 3, 2], b"");
        assert_eq!(trace.texts(8), [outer, caller, "[autograd]", "f f.py:12", "f f.py:13", "f f.py:11"]);
        trace.define(kind::STACK, 9, &[5, 0, 4, 0, 6, 7], b"");
        assert_eq!(trace.texts(9), [outer, caller, "[autograd]", "f f.py:12"]);
        // Nothing is shared but what the caller has too.
        trace.define(kind::STACK, 10, &[5, 0, 4, 0, 5, 6], b"");
        assert_eq!(trace.texts(10), [outer, caller, "[autograd]"]);
        // Only earlier stacks, once in a stack, and not within a forward pass.
        trace.define(kind::STACK, 11, &[4, 0, 6, 12, 4, 0, 12, 6, 3, 0], b"");
        trace.define(kind::STACK, 12, &[3, 0], b"");
        let missing = "[frame missing]";
        assert_eq!(trace.texts(11), ["[autograd]", missing, "[autograd]", missing, outer]);
        trace.define(kind::STACK, 13, &[4, 0, 6, 6, 6, 6, 4, 0], b"");
        assert_eq!(trace.texts(13).iter().filter(|text| *text == missing).count(), 1);
        trace.define(kind::STACK, 14, &[4, 0, 8, 8], b"");
        assert_eq!(trace.texts(14).iter().filter(|text| *text == missing).count(), 1);
    }

    #[test]
    fn stacks_that_begin_with_each_other_keep_the_innermost_frames() {
        let mut trace = TestTrace::default();
        trace.code(3, &code(&[2, 1], 2, 0));
        trace.define(kind::STACK, 10, &[3, 0], b"");
        for id in 11..100_000u32 {
            trace.define(kind::STACK, id, &[u64::from(id) - 1, 0, 3, 2], b"");
        }
        let texts = trace.texts(99_999);
        assert_eq!((texts.len(), &*texts[0], &*texts[1]), (FRAMES_MAX, "[truncated]", "f f.py:11"));
        assert_eq!(trace.texts(10 + FRAMES_MAX as u32 - 1).len(), FRAMES_MAX);
        assert_eq!(trace.texts(10 + FRAMES_MAX as u32 - 1)[0], "f f.py:10");
    }

    #[test]
    fn frames_of_every_kind_have_a_text() {
        let mut trace = TestTrace::default();
        trace.code(3, &code(&[2, 1], 2, 0));
        trace.define(kind::NAME, 4, &[], b"a range");
        trace.define(
            kind::STACK,
            5,
            &[3, NOT_BEGUN, 4, 9, 3, 2, 6, 0, 3, u64::MAX, 0, 0, 0, 1, 0, 7, 5, 1],
            b"",
        );
        let expected = [
            "f f.py:10",
            "a range",
            "f f.py:11",
            "[frame missing]",
            "f f.py:10",
            "[frames missing]",
            "[frame missing]",
            "[7 frames missing]",
            "[frame missing]",
        ];
        assert_eq!(trace.texts(5), expected);
        trace.define(kind::STACK, 7, &[0, 0, 3], b"");
        assert_eq!(trace.texts(7), ["[truncated]"]);
        assert!(trace.texts(0).is_empty() && trace.texts(3).is_empty() && trace.texts(99).is_empty());
    }
}
