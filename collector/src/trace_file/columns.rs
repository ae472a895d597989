//! Cells by columns: entries of one shape are split into fields, and each field is stored as a column of
//! differences, which compresses well.
//!
//! ```text
//!  entries, tail cells, shapes           varints
//!  shapes × (kind, cells, fields)        varints
//!  entries × shape index                 varints; absent if there is one shape
//!  shapes × fields × column              a mode byte, then by mode
//!  tail cells × 64 bytes                 cells that are no whole entry, unchanged
//! ```
//!
//! The encoder uses the shortest mode for each column. The decoder reads the fields from the block, so that
//! it needs no table that could differ from the writer's. Every bit of every cell is restored, whatever it
//! contains.

use gputrace_wire::cell::{CELL_BYTES, CELL_WORDS, Cell};

use crate::trace_file::bytes::{Bytes, put_varint, unzigzag, varint_bytes, zigzag};
use crate::trace_file::schema::Field;
use crate::trace_file::shape::Shape;

/// The most cells in one block; the writer splits longer batches.
pub const CELLS_MAX: usize = 1 << 16;

/// How a column is stored.
mod mode {
    /// All zero: nothing follows.
    pub const ZERO: u8 = 0;
    /// One value for all: the value.
    pub const CONSTANT: u8 = 1;
    /// Each value.
    pub const PLAIN: u8 = 2;
    /// Each value's difference to the one before, the first to 0; zigzag.
    pub const DELTA: u8 = 3;
    /// Each value's difference to the base field of the same entry; zigzag.
    pub const NEAR: u8 = 4;
    /// The first value and the difference between neighbours, which is one for all; zigzag.
    pub const STEP: u8 = 5;
    /// Each value at its full width.
    pub const FIXED: u8 = 6;
}

#[inline]
fn load(entry: &[Cell], field: Field) -> u64 {
    let at = usize::from(field.at);
    let word =
        entry.get(at / CELL_BYTES).and_then(|cell| cell.0.get(at % CELL_BYTES / 8)).copied().unwrap_or(0);
    if field.width == 8 { word } else { word >> (at % 8 * 8) & mask(field.width) }
}

#[inline]
fn store(entry: &mut [Cell], field: Field, value: u64) {
    let at = usize::from(field.at);
    let word = entry.get_mut(at / CELL_BYTES).and_then(|cell| cell.0.get_mut(at % CELL_BYTES / 8));
    if let Some(word) = word {
        *word |= (value & mask(field.width)) << (at % 8 * 8);
    }
}

#[inline]
fn mask(width: u8) -> u64 {
    if width >= 8 { u64::MAX } else { (1 << (width * 8)) - 1 }
}

/// The difference of two values of a width, as the shortest signed number.
#[inline]
fn difference(value: u64, before: u64, width: u8) -> u64 {
    let unused = 64 - u32::from(width) * 8;
    zigzag(value.wrapping_sub(before).wrapping_shl(unused).cast_signed() >> unused)
}

#[inline]
fn apply(before: u64, difference: u64, width: u8) -> u64 {
    before.wrapping_add(unzigzag(difference).cast_unsigned()) & mask(width)
}

/// Encodes cells. Its buffers are reused for each block.
#[derive(Debug, Default)]
pub struct ColumnEncoder {
    /// The shape of each entry, in order.
    sequence: Vec<u32>,
    /// By shape, the first cell of each of its entries.
    positions: Vec<Vec<u32>>,
    values: Vec<u64>,
    bases: Vec<u64>,
    /// The bits in which entries of a shape differ.
    differing: Vec<Cell>,
}

/// Finds the bits in which entries of one shape differ from the first one.
fn compare(cells: &[Cell], positions: &[u32], length: u8, differing: &mut Vec<Cell>) {
    differing.clear();
    differing.resize(usize::from(length), Cell::ZERO);
    let entry = |first: &u32| cells.get(*first as usize..).unwrap_or(&[]);
    let Some(model) = positions.first().map(entry) else { return };
    for first in positions {
        for ((differing, cell), model) in differing.iter_mut().zip(entry(first)).zip(model) {
            for ((differing, word), model) in differing.0.iter_mut().zip(cell.0).zip(model.0) {
                *differing |= word ^ model;
            }
        }
    }
}

/// Collects a field of the entries at these positions.
fn gather(cells: &[Cell], positions: &[u32], field: Field, values: &mut Vec<u64>) {
    let at = usize::from(field.at);
    let (cell, word, shift) = (at / CELL_BYTES, at % CELL_BYTES / 8, at % 8 * 8);
    let mask = mask(field.width);
    values.clear();
    values.extend(positions.iter().map(|first| {
        let cell = cells.get(*first as usize + cell);
        cell.and_then(|cell| cell.0.get(word)).map_or(0, |word| *word >> shift & mask)
    }));
}

impl ColumnEncoder {
    pub fn encode(&mut self, cells: &[Cell], out: &mut Vec<u8>) {
        let (shapes, whole) = self.cut(cells);
        put_varint(out, self.sequence.len() as u64);
        put_varint(out, (cells.len() - whole) as u64);
        put_varint(out, shapes.len() as u64);
        shapes.iter().for_each(|shape| shape.put(out));
        if shapes.len() > 1 {
            self.sequence.iter().for_each(|shape| put_varint(out, u64::from(*shape)));
        }
        for (shape, positions) in shapes.iter().zip(&self.positions) {
            compare(cells, positions, shape.cells, &mut self.differing);
            for field in &*shape.fields {
                let differs = load(&self.differing, *field) != 0;
                // Two values are enough for a column with one value throughout.
                let stored = if differs { &positions[..] } else { positions.get(..2).unwrap_or(positions) };
                gather(cells, stored, *field, &mut self.values);
                self.bases.clear();
                let base = field.base.and_then(|base| shape.fields.get(usize::from(base)));
                if let Some(base) = base.filter(|_| differs) {
                    gather(cells, stored, *base, &mut self.bases);
                }
                put_column(out, &self.values, &self.bases, field.width);
            }
        }
        for cell in cells.get(whole..).unwrap_or(&[]) {
            out.extend_from_slice(&cell.to_bytes());
        }
    }

    /// Finds the entries. Returns their shapes and the number of cells in whole entries.
    fn cut(&mut self, cells: &[Cell]) -> (Vec<Shape>, usize) {
        self.sequence.clear();
        self.positions.iter_mut().for_each(Vec::clear);
        let mut shapes: Vec<Shape> = Vec::new();
        let mut at = 0;
        while let Some(first) = cells.get(at) {
            let (kind, length) = (first.kind(), first.cells());
            if length == 0 || at + usize::from(length) > cells.len() {
                break;
            }
            let known = shapes.iter().position(|shape| shape.kind == kind && shape.cells == length);
            // A hostile ring may have thousands of kinds, and every entry is compared with all shapes.
            if known.is_none() && shapes.len() >= SHAPES_MAX {
                break;
            }
            let shape = known.unwrap_or_else(|| {
                shapes.push(Shape::new(kind, length));
                shapes.len() - 1
            });
            self.sequence.push(shape as u32);
            if self.positions.len() <= shape {
                self.positions.push(Vec::new());
            }
            if let Some(positions) = self.positions.get_mut(shape) {
                positions.push(at as u32);
            }
            at += usize::from(length);
        }
        (shapes, at)
    }
}

/// The most shapes in one block. Entries of further shapes are in its tail.
const SHAPES_MAX: usize = 64;

fn put_column(out: &mut Vec<u8>, values: &[u64], bases: &[u64], width: u8) {
    let Some(first) = values.first().copied() else { return };
    let mut any = 0;
    let mut plain = 0;
    let mut delta = 0;
    let mut before = 0;
    let step = values.get(1).map_or(0, |second| difference(*second, first, width));
    let mut steady = true;
    for (index, value) in values.iter().enumerate() {
        any |= value ^ first;
        plain += varint_bytes(*value);
        let change = difference(*value, before, width);
        delta += varint_bytes(change);
        steady &= index == 0 || change == step;
        before = *value;
    }
    let near = match bases.len() == values.len() {
        true => values.iter().zip(bases).map(|(v, b)| varint_bytes(difference(*v, *b, width))).sum(),
        false => usize::MAX,
    };
    let fixed = values.len() * usize::from(width);
    if any == 0 {
        match first {
            0 => out.push(mode::ZERO),
            value => {
                out.push(mode::CONSTANT);
                put_varint(out, value);
            }
        }
    } else if steady {
        out.push(mode::STEP);
        put_varint(out, first);
        put_varint(out, step);
    } else if plain <= delta && plain <= near && plain <= fixed {
        out.push(mode::PLAIN);
        values.iter().for_each(|value| put_varint(out, *value));
    } else if delta <= near && delta <= fixed {
        out.push(mode::DELTA);
        let mut before = 0;
        for value in values {
            put_varint(out, difference(*value, before, width));
            before = *value;
        }
    } else if near <= fixed {
        out.push(mode::NEAR);
        values.iter().zip(bases).for_each(|(value, base)| put_varint(out, difference(*value, *base, width)));
    } else {
        out.push(mode::FIXED);
        for value in values {
            out.extend(value.to_le_bytes().into_iter().take(width.into()));
        }
    }
}

/// Decodes cells; `None` if the bytes are invalid.
pub fn decode(bytes: &[u8]) -> Option<Vec<Cell>> {
    let mut bytes = Bytes::new(bytes);
    let entries = usize::try_from(bytes.varint()?).ok().filter(|count| *count <= CELLS_MAX)?;
    let tail = usize::try_from(bytes.varint()?).ok().filter(|count| *count <= CELLS_MAX)?;
    let shapes = bytes.count().filter(|count| *count <= SHAPES_MAX)?;
    let shapes: Vec<Shape> = (0..shapes).map(|_| Shape::take(&mut bytes)).collect::<Option<_>>()?;
    // By shape, the first cell of each of its entries.
    let mut positions: Vec<Vec<u32>> = shapes.iter().map(|_| Vec::new()).collect();
    let mut at = 0;
    for _ in 0..entries {
        let index = if shapes.len() > 1 { usize::try_from(bytes.varint()?).ok()? } else { 0 };
        positions.get_mut(index)?.push(at as u32);
        at += usize::from(shapes.get(index)?.cells);
        if at > CELLS_MAX {
            return None;
        }
    }
    let mut cells = vec![Cell::ZERO; at];
    for (shape, positions) in shapes.iter().zip(&positions) {
        for position in positions {
            if let Some(cell) = cells.get_mut(*position as usize) {
                *cell = Cell::new(shape.kind, shape.cells, 0);
            }
        }
        for field in &*shape.fields {
            take_column(&mut bytes, &mut cells, positions, *field, &shape.fields)?;
        }
    }
    for _ in 0..tail {
        cells.push(Cell::from_bytes(bytes.take(CELL_BYTES)?.try_into().ok()?));
    }
    Some(cells)
}

fn take_column(
    bytes: &mut Bytes,
    cells: &mut [Cell],
    positions: &[u32],
    field: Field,
    fields: &[Field],
) -> Option<()> {
    if positions.is_empty() {
        return Some(());
    }
    let mode = bytes.u8()?;
    let width = field.width;
    let base = field.base.and_then(|base| fields.get(usize::from(base)));
    let (first, step) = match mode {
        mode::CONSTANT => (bytes.varint()?, 0),
        mode::STEP => (bytes.varint()?, bytes.varint()?),
        _ => (0, 0),
    };
    let mut before = 0;
    for (index, position) in positions.iter().enumerate() {
        let entry = cells.get_mut(*position as usize..)?;
        let value = match mode {
            mode::ZERO => break,
            mode::CONSTANT => first,
            mode::STEP if index == 0 => first,
            mode::STEP => apply(before, step, width),
            mode::PLAIN => bytes.varint()?,
            mode::DELTA => apply(before, bytes.varint()?, width),
            mode::NEAR => apply(load(entry, *base?), bytes.varint()?, width),
            mode::FIXED => {
                let mut word = [0; 8];
                for (to, from) in word.iter_mut().zip(bytes.take(width.into())?) {
                    *to = *from;
                }
                u64::from_le_bytes(word)
            }
            _ => return None,
        };
        store(entry, field, value);
        before = value;
    }
    Some(())
}

const _: () = assert!(CELL_WORDS * 8 == CELL_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace_file::schema;
    use gputrace_wire::cell::kind;
    use proptest::prelude::*;

    fn round_trip(cells: &[Cell]) -> Vec<u8> {
        let mut out = Vec::new();
        ColumnEncoder::default().encode(cells, &mut out);
        assert!(decode(&out).as_deref() == Some(cells));
        out
    }

    fn words() -> impl Strategy<Value = [u64; CELL_WORDS]> {
        prop_oneof![any::<[u64; CELL_WORDS]>(), prop::array::uniform8(0u64..300)]
    }

    /// Any words, often under a header that makes sense.
    fn cells() -> impl Strategy<Value = Vec<Cell>> {
        let cell = (words(), any::<bool>(), 0u16..60, 0u8..4).prop_map(|(words, sensible, kind, length)| {
            let mut cell = Cell(words);
            if sensible {
                cell.put_u16(0, kind);
                cell.put_u8(2, length);
            }
            cell
        });
        prop::collection::vec(cell, 0..60)
    }

    proptest! {
        #[test]
        fn bits_round_trip(cells in cells()) {
            round_trip(&cells);
        }

        #[test]
        fn bits_of_known_kinds_round_trip(
            entries in prop::collection::vec((any::<[u64; CELL_WORDS]>(), words(), 0usize..18), 1..50),
        ) {
            let known: Vec<_> = (0..64).flat_map(|k| [(k, 1), (k, 2)])
                .filter(|(k, c)| schema::fields(*k, *c).is_some()).collect();
            let mut cells = Vec::new();
            for (first, second, which) in entries {
                let (kind, length) = known[which];
                let mut cell = Cell(first);
                cell.put_u16(0, kind);
                cell.put_u8(2, length);
                cells.push(cell);
                cells.extend((length == 2).then_some(Cell(second)));
            }
            round_trip(&cells);
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(cells) = decode(&bytes) {
                prop_assert!(cells.len() <= 2 * CELLS_MAX);
            }
        }

        #[test]
        fn changed_bytes_decode_or_are_refused(cells in cells(), at: prop::sample::Index, to: u8) {
            let mut out = round_trip(&cells);
            let index = at.index(out.len());
            out[index] = to;
            decode(&out);
        }
    }

    #[test]
    fn few_bytes_cannot_claim_much() {
        let mut bytes = Vec::new();
        for value in [CELLS_MAX as u64, 0, 1, 16, 255, 0] {
            put_varint(&mut bytes, value);
        }
        assert!(decode(&bytes).is_none(), "65 536 entries of 255 cells are more than a block holds");
    }

    #[test]
    fn steady_columns_cost_nothing_per_entry() {
        let cells: Vec<_> = (0..1000u32)
            .map(|i| {
                let mut cell = Cell::new(kind::LAUNCH, 1, 0);
                cell.put_u32(20, 5 + i);
                cell.put_u32(36, 77);
                cell
            })
            .collect();
        assert!(round_trip(&cells).len() < 80);
    }
}
