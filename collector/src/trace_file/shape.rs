//! A shape: entries of one kind and length, and their fields as stored in a block.

use std::borrow::Cow;

use gputrace_wire::cell::CELL_BYTES;

use crate::trace_file::bytes::{Bytes, put_varint};
use crate::trace_file::schema::{self, Field};

/// Entries of one kind and length.
pub struct Shape {
    pub kind: u16,
    pub cells: u8,
    pub fields: Cow<'static, [Field]>,
}

impl Shape {
    pub fn new(kind: u16, cells: u8) -> Shape {
        let fields = match schema::fields(kind, cells) {
            Some(fields) => Cow::Borrowed(fields),
            None => Cow::Owned(schema::words(cells)),
        };
        Shape { kind, cells, fields }
    }

    /// Writes the shape, with its fields as differences.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.kind.into());
        put_varint(out, self.cells.into());
        let Cow::Borrowed(fields) = &self.fields else { return put_varint(out, 0) };
        put_varint(out, fields.len() as u64);
        let mut end = 0;
        for field in *fields {
            let gap = u64::from(field.at - end);
            let near = u64::from(field.base.is_some());
            put_varint(out, gap << 3 | near << 2 | u64::from(field.width.ilog2()));
            if let Some(base) = field.base {
                put_varint(out, base.into());
            }
            end = field.at + u16::from(field.width);
        }
    }

    /// Reads a shape; `None` if its fields do not fit an entry of its length.
    pub fn take(bytes: &mut Bytes) -> Option<Shape> {
        let kind = bytes.u16()?;
        let cells = u8::try_from(bytes.varint()?).ok().filter(|cells| *cells != 0)?;
        let count = bytes.count()?;
        if count == 0 {
            return Some(Shape { kind, cells, fields: Cow::Owned(schema::words(cells)) });
        }
        let size = u16::from(cells) * CELL_BYTES as u16;
        let mut fields: Vec<Field> = Vec::new();
        let mut end = 0u16;
        for _ in 0..count {
            let about = bytes.varint()?;
            let width = 1u8 << (about & 3);
            let at = end.checked_add(u16::try_from(about >> 3).ok()?)?;
            end = at.checked_add(width.into()).filter(|end| *end <= size)?;
            let base = match about & 4 {
                0 => None,
                _ => Some(u8::try_from(bytes.varint()?).ok()?),
            };
            let base_fits = |base: u8| fields.get(usize::from(base)).is_some_and(|base| base.width == width);
            if !at.is_multiple_of(width.into()) || !base.is_none_or(base_fits) {
                return None;
            }
            fields.push(Field { at, width, base });
        }
        Some(Shape { kind, cells, fields: Cow::Owned(fields) })
    }
}
