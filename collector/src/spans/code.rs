//! The line of the program that a span comes from, and the Python stack above it.
//!
//! Only Python frames are used: they need nothing but the trace, while native frames need the program's
//! files. The line is the innermost one of user code ([`crate::source::is_own`]); a line of a `<string>`
//! counts only if there is no other. Each stack is read once, and what is kept is bounded.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use gputrace_wire::definition::stack::FRAMES_MAX;

use crate::model::definitions::Definitions;
use crate::source::{Code, FileNames, begin_of, is_made};
use crate::spans::span::{Attribute, Value};

/// The most stacks whose line is kept, and whose text is.
const LINES_MAX: usize = 1 << 17;
const TEXTS_MAX: usize = 1 << 10;
/// The most bytes of a stack's text. A back end stores one with each slow span.
const TEXT_MAX_BYTES: usize = 2048;
/// Replaces the outer frames of a text that was cut.
const MORE: &str = "  ...\n";

/// The lines of one process's stacks.
#[derive(Debug)]
pub struct Lines {
    files: FileNames,
    codes: FxHashMap<u32, Option<Code>>,
    /// Bytes of line tables that were decoded so far.
    decoded_bytes: usize,
    lines: FxHashMap<u32, Option<At>>,
    texts: FxHashMap<u32, Arc<str>>,
}

#[derive(Clone, Debug)]
struct At {
    function: Value,
    path: Value,
    line: u32,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines {
            files: FileNames::new(std::iter::empty()),
            codes: FxHashMap::default(),
            decoded_bytes: 0,
            lines: FxHashMap::default(),
            texts: FxHashMap::default(),
        }
    }
}

impl Lines {
    /// Adds the stack's attributes to a span: the line, and all frames if the span is `slow`.
    pub fn describe(&mut self, stack: u32, slow: bool, definitions: &Definitions, to: &mut Vec<Attribute>) {
        if stack == 0 {
            return;
        }
        if let Some(At { function, path, line }) = self.line(stack, definitions) {
            to.push(("code.function.name", function));
            to.push(("code.file.path", path));
            to.push(("code.line.number", Value::number(line)));
        }
        if slow {
            let text = self.text(stack, definitions);
            if !text.is_empty() {
                to.push(("code.stacktrace", Value::Text(text)));
            }
        }
    }

    fn line(&mut self, stack: u32, definitions: &Definitions) -> Option<At> {
        if let Some(known) = self.lines.get(&stack) {
            return known.clone();
        }
        if self.lines.len() >= LINES_MAX {
            self.lines.clear();
        }
        let mut found = None;
        self.each(stack, definitions, |code, at| {
            let Some(code) = code.filter(|code| code.own) else { return true };
            let is_made = is_made(&code.path);
            if found.is_none() || !is_made {
                found = Some(At {
                    function: Value::text(&code.function),
                    path: Value::text(&code.path),
                    line: code.line(at),
                });
            }
            is_made
        });
        self.lines.insert(stack, found.clone());
        found
    }

    /// The stack as Python's tracebacks show it: the innermost call comes last.
    fn text(&mut self, stack: u32, definitions: &Definitions) -> Arc<str> {
        if let Some(known) = self.texts.get(&stack) {
            return known.clone();
        }
        if self.texts.len() >= TEXTS_MAX {
            self.texts.clear();
        }
        let (mut written, mut bytes, mut is_cut) = (Vec::new(), MORE.len(), false);
        self.each(stack, definitions, |code, at| {
            let line = match code {
                Some(code) => {
                    format!("  File \"{}\", line {}, in {}\n", code.path, code.line(at), code.function)
                }
                None => return true,
            };
            bytes += line.len();
            is_cut = bytes > TEXT_MAX_BYTES;
            if !is_cut {
                written.push(line);
            }
            !is_cut
        });
        if is_cut {
            written.push(MORE.to_owned());
        }
        written.reverse();
        let text: Arc<str> = written.concat().into();
        self.texts.insert(stack, text.clone());
        text
    }

    /// Calls `seen` with the frames of a stack, innermost first, until it returns false. It gets the code, or
    /// `None` for a native frame, and the position in the code.
    fn each(
        &mut self,
        stack: u32,
        definitions: &Definitions,
        mut seen: impl FnMut(Option<&Code>, u64) -> bool,
    ) {
        let (mut next, mut left) = (stack, FRAMES_MAX);
        // A stack may begin with another one, which was defined before it: ids only get smaller, so this
        // ends.
        while next != 0
            && let Some((outer, frames)) = begin_of(definitions, next)
        {
            for (id, at) in frames.iter().rev() {
                left = left.saturating_sub(1);
                let code = self.code(*id, definitions);
                if left == 0 || !seen(code, *at) {
                    return;
                }
            }
            next = outer;
        }
    }

    fn code(&mut self, id: u32, definitions: &Definitions) -> Option<&Code> {
        let Lines { files, decoded_bytes, .. } = self;
        let read = || {
            // All tables together have no more bytes than were defined, since pieces belong to one table
            // each.
            let left = definitions.code_bytes().saturating_sub(*decoded_bytes);
            let mut rest = left;
            let code = Code::read(definitions, files, id, &mut rest);
            *decoded_bytes += left - rest;
            code
        };
        self.codes.entry(id).or_insert_with(read).as_ref()
    }
}
