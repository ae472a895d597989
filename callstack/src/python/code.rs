//! A code object as a definition: its name, its file, its lines.

use gputrace_wire::definition::{Code, TEXT_MAX, code_runtime, kind};

use super::layout::Layout;
use super::memory::Memory;
use super::unicode;
use super::walk::{Types, is_of};

const NAME_MAX: usize = 1024;
const FILE_MAX: usize = 4096;
/// A longer line table is cut to this: a module of some fifty thousand lines.
const TABLE_MAX: usize = 256 << 10;

/// A buffer for a definition's text.
pub type Text = [u8; TEXT_MAX];

/// Writes a definition once; returns its id.
pub trait Define {
    fn define(&self, kind: u16, fields: &[u64], text: &[u8]) -> u32;
}

/// Defines the code object; `None` if its name, file or line table cannot be read.
pub fn define<M: Memory>(
    memory: &M,
    layout: &Layout,
    types: &Types,
    version: u32,
    code: u64,
    text: &mut Text,
    to: &impl Define,
) -> Option<u32> {
    let name = memory.word(code, layout.code_name.into())?;
    let file = memory.word(code, layout.code_file.into())?;
    let table = memory.word(code, layout.code_table.into())?;
    let of_text = |object: u64| memory.may_hold(object) && is_of(memory, layout, object, types.text);
    if !of_text(name)
        || !of_text(file)
        || !memory.may_hold(table)
        || !is_of(memory, layout, table, types.bytes)
    {
        return None;
    }
    let table_bytes = usize::try_from(memory.word(table, layout.object_size.into())?).ok()?;
    let first_line = memory.half(code, layout.code_first_line.into())?.cast_signed().max(0);
    let flags = memory.half(code, layout.code_flags.into())?;

    let kept = table_bytes.min(TABLE_MAX);
    // The space for the line table in the code's own definition is known after its name and file.
    let name_bytes = unicode::read(memory, layout, name, text.get_mut(..NAME_MAX)?)?;
    let file_bytes = unicode::read(memory, layout, file, text.get_mut(name_bytes..name_bytes + FILE_MAX)?)?;
    let here = kept.min(TEXT_MAX - name_bytes - file_bytes);
    let data = u64::from(layout.bytes_data);
    let mut more = 0;
    if here < kept {
        // The last piece first, so that each piece can name the next one.
        let pieces = (kept - here).div_ceil(TEXT_MAX);
        for piece in (0..pieces).rev() {
            let from = here + piece * TEXT_MAX;
            let bytes = text.get_mut(..(kept - from).min(TEXT_MAX))?;
            if !memory.read(table, data + from as u64, bytes) {
                return None;
            }
            more = to.define(kind::LINES, &[more.into()], bytes);
        }
        unicode::read(memory, layout, name, text.get_mut(..name_bytes)?)?;
        unicode::read(memory, layout, file, text.get_mut(name_bytes..name_bytes + file_bytes)?)?;
    }
    let begin = name_bytes + file_bytes;
    if !memory.read(table, data, text.get_mut(begin..begin + here)?) {
        return None;
    }
    let (name, rest) = text.split_at(name_bytes);
    let (file, rest) = rest.split_at(file_bytes);
    let code = Code {
        runtime: code_runtime::CPYTHON,
        version: version.into(),
        first_line: first_line.cast_unsigned().into(),
        table_form: layout.table_form(),
        table_bytes: table_bytes as u64,
        more,
        flags: flags.into(),
        name,
        file,
        table: rest.get(..here)?,
    };
    Some(to.define(kind::CODE, &code.fields(), text.get(..begin + here)?))
}
