//! Python code objects as the trace defines them, and stacks as pairs of code and position.

use std::sync::Arc;

use gputrace_wire::definition::stack::NOT_BEGUN;

use crate::model::definitions::Definitions;
use crate::names::readable;
use crate::source::{FileNames, LineTable, is_own};

/// A code object with its decoded line table.
#[derive(Debug)]
pub(crate) struct Code {
    pub function: Arc<str>,
    pub file: Arc<str>,
    pub path: Arc<str>,
    pub own: bool,
    first_line: u32,
    pub(crate) table: LineTable,
}

impl Code {
    pub fn read(
        definitions: &Definitions,
        files: &FileNames,
        id: u32,
        bytes_left: &mut usize,
    ) -> Option<Code> {
        let code = definitions.code(id)?;
        let wanted = usize::try_from(code.table_bytes).unwrap_or(usize::MAX);
        let mut table = code.table.to_vec();
        let mut more = code.more;
        while table.len() < wanted && table.len() <= *bytes_left {
            match definitions.lines(more) {
                Some((piece, next)) if !piece.is_empty() => {
                    table.extend(piece);
                    more = next;
                }
                _ => break,
            }
        }
        table.truncate(wanted);
        *bytes_left = bytes_left.saturating_sub(table.len());
        let path = readable(code.file);
        Some(Code {
            function: readable(code.name),
            file: files.name(&path),
            own: is_own(&path),
            path,
            first_line: u32::try_from(code.first_line).unwrap_or(0),
            table: LineTable::decode(code.table_form, code.first_line, &table, table.len() == wanted),
        })
    }

    /// The line at a position, or the first line if the position has none.
    pub fn line(&self, position: u64) -> u32 {
        let begun = (position as u32 as u64 != NOT_BEGUN).then_some(position as u32);
        begun.and_then(|at| self.table.line(at)).unwrap_or(self.first_line)
    }
}

/// The outer stack with which a stack begins, 0 if none, and the stack's own pairs; `None` if it is no stack.
pub(crate) fn begin_of(definitions: &Definitions, stack: u32) -> Option<(u32, Vec<(u32, u64)>)> {
    let mut pairs = definitions.stack(stack).peekable();
    pairs.peek()?;
    let outer = pairs.next_if(|(first, _)| *first < stack && definitions.stack(*first).next().is_some());
    Some((outer.map_or(0, |(outer, _)| outer), pairs.collect()))
}
