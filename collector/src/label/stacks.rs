//! Stacks as the program's frames: which function, in which file, at which line.
//!
//! Codes and lines are looked up when a stack is asked for, once each. Lines have numbers, so that
//! who adds up over many stacks compares no texts.

use std::sync::Arc;

use gputrace_wire::definition::stack::FRAMES_MAX;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::label::machinery::{self, DYNAMO, Part};
use crate::model::Totals;
use crate::model::definitions::Definitions;
use crate::names::readable;
use crate::source::{Code, FileNames, begin_of, is_made};
use crate::symbols::{Natives, Place};

/// Stands for a line that is not known.
pub const NO_LINE: u32 = u32::MAX;

/// A line of a function, or a function of which no lines are known: its file is then the program or library that it is in.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Line {
    pub function: Arc<str>,
    /// The file's short name, unique within the session.
    pub file: Arc<str>,
    /// The file as the compiler was told it.
    pub path: Arc<str>,
    /// [`NO_LINE`] where it is not known.
    pub line: u32,
    /// Whether the file is the program's own.
    pub own: bool,
}

/// A frame of a stack.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum StackFrame {
    /// The number of a line, of [`Stacks::line`]. Equal lines have the same, in all processes.
    Line(usize),
    /// Of a kind that has a text and no lines.
    Named(Arc<str>),
    /// The stack was deeper than is recorded.
    Truncated,
    /// So many frames are not known; 0 where nobody counted them.
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

    /// Whether it is in a file of the program's own, or typed into a prompt: no function that a library may have made.
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

/// The stacks of a session's processes.
#[derive(Debug)]
pub struct Stacks<'a> {
    processes: FxHashMap<u32, &'a Definitions>,
    files: FileNames,
    codes: FxHashMap<(u32, u32), Option<Code>>,
    /// Numbers of lines by process, code and line.
    of_codes: FxHashMap<(u32, u32, u32), usize>,
    natives: Natives,
    lines: Vec<Line>,
    numbers: FxHashMap<Line, usize>,
    /// What the first so many lines have to do with a compiler's machinery.
    machinery: Vec<Part>,
    /// What may still be read of line tables. A piece is of one table only, so that all together
    /// are no longer than what was said; a trace that says otherwise does not cost more.
    table_bytes_left: usize,
}

impl<'a> Stacks<'a> {
    pub fn new(totals: &'a Totals) -> Stacks<'a> {
        let processes: FxHashMap<u32, &Definitions> =
            totals.processes.iter().map(|process| (process.number, &process.definitions)).collect();
        // By their definitions and not by what is asked for, so that every output says the same.
        let mut paths: FxHashMap<&[u8], Arc<str>> = FxHashMap::default();
        for (_, code) in totals.processes.iter().flat_map(|process| process.definitions.codes()) {
            paths.entry(code.file).or_insert_with(|| readable(code.file));
        }
        let natives = Natives::new(totals);
        let sources: FxHashSet<&str> = natives.files().collect();
        Stacks {
            files: FileNames::new(paths.into_values().chain(sources.into_iter().map(Arc::from))),
            natives,
            codes: FxHashMap::default(),
            of_codes: FxHashMap::default(),
            lines: Vec::new(),
            numbers: FxHashMap::default(),
            machinery: Vec::new(),
            table_bytes_left: totals.processes.iter().map(|process| process.definitions.code_bytes()).sum(),
            processes,
        }
    }

    /// A stack's frames, outermost first; none of stack 0.
    pub fn frames(&mut self, process: u32, stack: u32) -> Vec<StackFrame> {
        if stack == 0 {
            return Vec::new();
        }
        let Some(definitions) = self.processes.get(&process).copied() else { return Vec::new() };
        let Some((outer, own)) = begin_of(definitions, stack) else { return Vec::new() };
        // What a stack begins with is another one, said before: their numbers fall, and so this ends.
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
            // How a thread begins is nobody's work.
            let mut begins = true;
            for (place, (code, at)) in part.iter().enumerate() {
                if let Some(native) = self.natives.place(process, *code, *at).cloned() {
                    begins &= native.begins;
                    if !begins {
                        self.native(&native, &mut frames);
                    }
                    continue;
                }
                let frame = self.frame(process, definitions, place, *code, *at);
                begins &= matches!(frame, StackFrame::Named(_));
                frames.push(frame);
            }
        }
        if outer != 0 || frames.len() > FRAMES_MAX {
            // The innermost ones are kept.
            frames.drain(..frames.len().saturating_sub(FRAMES_MAX - 1));
            frames.insert(0, StackFrame::Truncated);
        }
        self.without_machinery(frames)
    }

    /// Runs of a compiler's own frames as one each.
    fn without_machinery(&mut self, mut frames: Vec<StackFrame>) -> Vec<StackFrame> {
        let unknown = self.lines.get(self.machinery.len()..).unwrap_or_default();
        self.machinery.extend(unknown.iter().map(|line| machinery::part(&line.path)));
        let parts = frames.iter().map(|frame| match frame {
            StackFrame::Line(number) => self.machinery.get(*number).copied().unwrap_or(Part::Other),
            _ => Part::Other,
        });
        for run in machinery::runs(parts).into_iter().rev() {
            frames.splice(run, [StackFrame::Named(DYNAMO.into())]);
        }
        frames
    }

    /// The functions at a native place.
    fn native(&mut self, place: &Place, frames: &mut Vec<StackFrame>) {
        for function in &place.functions {
            let unnamed = || format!("[{}+{:#x}]", place.file, place.address);
            let name = function.name.clone().unwrap_or_else(unnamed);
            frames.push(match &function.file {
                None if function.name.is_none() => StackFrame::Named(name.into()),
                None => StackFrame::Line(self.number(Line {
                    function: name.into(),
                    file: place.file.clone(),
                    path: place.image.clone(),
                    line: NO_LINE,
                    own: place.own,
                })),
                Some(path) => {
                    let (own, line) = (place.is_own_file(path), function.line);
                    let path: Arc<str> = path.as_str().into();
                    let file = self.files.name(&path);
                    StackFrame::Line(self.number(Line { function: name.into(), file, path, line, own }))
                }
            });
        }
    }

    /// The number of a line.
    fn number(&mut self, line: Line) -> usize {
        let number = *self.numbers.entry(line.clone()).or_insert(self.lines.len());
        if number == self.lines.len() {
            self.lines.push(line);
        }
        number
    }

    /// What the user should know of native frames without names.
    pub fn notices(&self) -> Vec<String> {
        self.natives.notices()
    }

    fn frame(
        &mut self,
        process: u32,
        definitions: &Definitions,
        place: usize,
        id: u32,
        at: u64,
    ) -> StackFrame {
        match (id, place, at) {
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

    /// The line that a frame is at, if it is known.
    pub fn line(&self, frame: &StackFrame) -> Option<&Line> {
        match frame {
            StackFrame::Line(number) => self.lines.get(*number),
            _ => None,
        }
    }

    /// A frame in a few words.
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

#[cfg(test)]
mod tests {
    use gputrace_wire::definition::stack::NOT_BEGUN;
    use gputrace_wire::definition::{self, Code as Said, kind, line_table};

    use super::*;
    use crate::batch::Definition;
    use crate::model::Process;

    #[derive(Default)]
    struct Told(Totals);

    impl Told {
        fn define(&mut self, kind: u16, id: u32, fields: &[u64], text: &[u8]) {
            if self.0.processes.is_empty() {
                self.0.processes.push(Process::default());
            }
            let record = Definition { kind, id, fields: fields.to_vec(), text: text.to_vec() };
            self.0.processes[0].definitions.add(&record);
        }

        /// A code with so much of its table, and the definition of what follows.
        fn code(&mut self, id: u32, said: &Said<'_>) {
            self.define(kind::CODE, id, &said.fields(), &[said.name, said.file, said.table].concat());
        }

        fn texts(&self, stack: u32) -> Vec<String> {
            let mut stacks = Stacks::new(&self.0);
            let frames = stacks.frames(0, stack);
            frames.iter().map(|frame| stacks.text(frame)).collect()
        }
    }

    fn said<'a>(table: &'a [u8], table_bytes: u64, more: u32) -> Said<'a> {
        let (name, file) = (&b"f"[..], &b"f.py"[..]);
        let table_form = line_table::LNOTAB;
        Said { first_line: 10, table_form, table_bytes, more, name, file, table, ..Said::default() }
    }

    #[test]
    fn a_table_in_pieces_is_read_as_one() {
        let table: Vec<u8> = [2u8, 1].repeat(50);
        let mut told = Told::default();
        told.define(kind::LINES, 1, &[0], &table[61..]);
        told.define(kind::LINES, 2, &[1], &table[33..61]);
        told.code(3, &said(&table[..33], 100, 2));
        // The same with its last piece missing, and one that is whole.
        told.define(kind::LINES, 4, &[77], &table[33..61]);
        told.code(5, &said(&table[..33], 100, 4));
        told.code(6, &said(&table, 100, 0));
        for at in [0, 40, 58, 60, 99, 100, 5_000] {
            let stack = 10 + at as u32;
            told.define(kind::STACK, stack, &[3, at, 5, at, 6, at], b"");
            let texts = told.texts(stack);
            let line = 10 + (at / 2).min(50);
            let cut = if at > 60 { 10 } else { line };
            assert_eq!(texts, [line, cut, line].map(|line| format!("f f.py:{line}")), "{at}");
        }
    }

    #[test]
    fn pieces_that_name_each_other_are_read_no_further_than_what_was_said() {
        let mut told = Told::default();
        let piece = vec![1u8; definition::TEXT_MAX];
        told.define(kind::LINES, 1, &[2], &piece);
        told.define(kind::LINES, 2, &[1], &piece);
        told.define(kind::LINES, 3, &[3], b"");
        for code in 10..200 {
            told.code(code, &said(b"", u64::MAX, if code % 9 == 0 { 3 } else { 1 }));
            told.define(kind::STACK, code + 1_000, &[code.into(), 4], b"");
        }
        let mut stacks = Stacks::new(&told.0);
        let before = stacks.table_bytes_left;
        for code in 10..200 {
            assert_eq!(stacks.frames(0, code + 1_000).len(), 1);
        }
        let runs: usize = stacks.codes.values().flatten().map(|code| code.table.run_count()).sum();
        assert!(runs <= before + 190 * (definition::TEXT_MAX + 2), "{runs} of {before}");
    }

    #[test]
    fn what_a_compiler_puts_between_lines_is_one_frame() {
        let mut told = Told::default();
        let code = |file: &'static str| Said { file: file.as_bytes(), name: b"f", ..said(b"", 0, 0) };
        for (id, file) in [(1, "train.py"), (2, "x/torch/_dynamo/a.py"), (3, "x/torch/nn/modules/module.py")]
        {
            told.code(id, &code(file));
        }
        told.code(4, &code("<eval_with_key>.1"));
        told.define(kind::STACK, 10, &[1, 0, 2, 0, 3, 0, 2, 0, 1, 0, 2, 0, 4, 0], b"");
        let expected = ["f train.py:10", DYNAMO, "f train.py:10", "f a.py:10", "f <eval_with_key>.1:10"];
        assert_eq!(told.texts(10), expected);
    }

    #[test]
    fn a_stack_that_begins_with_another_has_its_frames_first() {
        let mut told = Told::default();
        told.code(3, &said(&[2, 1], 2, 0));
        told.define(kind::NAME, 4, &[], b"[autograd]");
        told.define(kind::STACK, 5, &[3, 0, 3, 2], b"");
        told.define(kind::STACK, 6, &[5, 0, 4, 0], b"");
        told.define(kind::STACK, 7, &[6, 0, 3, 0], b"");
        assert_eq!(told.texts(6), ["f f.py:10", "f f.py:11", "[autograd]"]);
        assert_eq!(told.texts(7), ["f f.py:10", "f f.py:11", "[autograd]", "f f.py:10"]);
        // Only at the beginning, and only one that was said before.
        told.define(kind::STACK, 8, &[3, 0, 5, 0], b"");
        told.define(kind::STACK, 9, &[9, 0, 3, 0], b"");
        told.define(kind::STACK, 10, &[11, 0, 3, 0], b"");
        told.define(kind::STACK, 11, &[10, 0], b"");
        assert_eq!(told.texts(8), ["f f.py:10", "[frame missing]"]);
        assert_eq!(told.texts(9), ["[frame missing]", "f f.py:10"]);
        assert_eq!(told.texts(10), ["[frame missing]", "f f.py:10"]);
        assert_eq!(told.texts(11), ["[frame missing]", "f f.py:10"]);
    }

    #[test]
    fn of_many_stacks_that_begin_with_each_other_the_innermost_frames_are_kept() {
        let mut told = Told::default();
        told.code(3, &said(&[2, 1], 2, 0));
        told.define(kind::STACK, 10, &[3, 0], b"");
        for id in 11..100_000u32 {
            told.define(kind::STACK, id, &[u64::from(id) - 1, 0, 3, 2], b"");
        }
        let texts = told.texts(99_999);
        assert_eq!((texts.len(), &*texts[0], &*texts[1]), (FRAMES_MAX, "[truncated]", "f f.py:11"));
        assert_eq!(told.texts(10 + FRAMES_MAX as u32 - 1).len(), FRAMES_MAX);
        assert_eq!(told.texts(10 + FRAMES_MAX as u32 - 1)[0], "f f.py:10");
    }

    #[test]
    fn positions_and_other_kinds_of_frames_are_read() {
        let mut told = Told::default();
        told.code(3, &said(&[2, 1], 2, 0));
        told.define(kind::NAME, 4, &[], b"a range");
        told.define(
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
        assert_eq!(told.texts(5), expected);
        told.define(kind::STACK, 7, &[0, 0, 3], b"");
        assert_eq!(told.texts(7), ["[truncated]"]);
        assert!(told.texts(0).is_empty() && told.texts(3).is_empty() && told.texts(99).is_empty());
    }
}
