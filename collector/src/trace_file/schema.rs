//! The schema: which fields an entry of each kind has, for storing it by columns.
//!
//! A field is an offset and a width, without a meaning. The fields of a shape cover every byte after the kind
//! and the length exactly once, in order, so that all bytes of an entry are stored, reserved ones too.
//! Entries of other kinds or lengths are stored as whole words. Only the writer uses this table: a file
//! contains the fields with which it was written.

use gputrace_wire::cell::kind;

/// A column: bytes `at .. at + width` of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    pub at: u16,
    pub width: u8,
    /// Index of a field of the same entry with a similar value (the start, for an end).
    pub base: Option<u8>,
}

const fn field(at: u16, width: u8) -> Field {
    Field { at, width, base: None }
}

const fn near(at: u16, width: u8, base: u8) -> Field {
    Field { at, width, base: Some(base) }
}

/// The first fields of all host calls: flags, api, start, duration, correlation, stack, context, stream.
macro_rules! call {
    ($($detail:expr),* $(,)?) => {
        &[
            field(3, 1), field(4, 4), field(8, 8), field(16, 4), field(20, 4), field(24, 4), field(28, 4),
            field(32, 4), $($detail,)* field(60, 2), field(62, 2),
        ]
    };
}

/// The first fields of all device records: flags, correlation, start, end, stream, device, context, graph
/// node, graph.
macro_rules! record {
    ($($detail:expr),* $(,)?) => {
        &[
            field(3, 1), field(4, 4), field(8, 8), near(16, 8, 2), field(24, 4), field(28, 2), field(30, 2),
            field(32, 8), field(40, 4), $($detail,)*
        ]
    };
}

const LAUNCH: &[Field] = call![
    field(36, 4),
    field(40, 4),
    field(44, 2),
    field(46, 2),
    field(48, 2),
    field(50, 2),
    field(52, 1),
    field(53, 1),
    field(54, 1),
    field(55, 1),
    field(56, 4),
];
/// One word of small values, then two words.
const WORDS: &[Field] = call![field(36, 4), field(40, 8), field(48, 8), field(56, 4)];
/// One word of small values, then ids.
const IDS: &[Field] = call![field(36, 4), field(40, 4), field(44, 4), field(48, 8), field(56, 4)];

const KERNEL: &[Field] = record![
    field(44, 4),
    field(48, 4),
    field(52, 2),
    field(54, 2),
    field(56, 2),
    field(58, 2),
    field(60, 2),
    field(62, 2),
    field(64, 4),
    field(68, 4),
    field(72, 4),
    field(76, 4),
    field(80, 1),
    field(81, 1),
    field(82, 1),
    field(83, 1),
    field(84, 4),
    near(88, 8, 2),
    near(96, 8, 2),
    field(104, 8),
    field(112, 8),
    field(120, 8),
];
const RECORD: &[Field] = record![field(44, 4), field(48, 8), field(56, 2), field(58, 2), field(60, 4)];

/// Flags, a small word, ticks and further fields.
const MARK: &[Field] = &[
    field(3, 1),
    field(4, 4),
    field(8, 8),
    field(16, 8),
    field(24, 8),
    field(32, 8),
    field(40, 4),
    field(44, 4),
    field(48, 8),
    field(56, 8),
];

/// Flags, device, ticks, allocated bytes, stack, reserved bytes, bytes, address.
const BLOCK: &[Field] = &[
    field(3, 1),
    field(4, 4),
    field(8, 8),
    field(16, 8),
    field(24, 4),
    field(28, 4),
    field(32, 8),
    field(40, 8),
    field(48, 8),
    field(56, 8),
];

/// The fields of entries of that kind and length, if they are known.
pub fn fields(kind: u16, cells: u8) -> Option<&'static [Field]> {
    Some(match (kind, cells) {
        (kind::LAUNCH, 1) => LAUNCH,
        (kind::MODULE | kind::GRAPH, 1) => IDS,
        (
            kind::GRAPH_LAUNCH
            | kind::COPY
            | kind::FILL
            | kind::ALLOC
            | kind::FREE
            | kind::MEMORY
            | kind::WAIT
            | kind::CALL,
            1,
        ) => WORDS,
        (kind::BLOCK, 1) => BLOCK,
        (kind::DEVICE_KERNEL, 2) => KERNEL,
        (kind::DEVICE_COPY | kind::DEVICE_FILL | kind::DEVICE_GRAPH, 1) => RECORD,
        (
            kind::THREAD_BEGIN
            | kind::ANCHOR
            | kind::EPOCH_BEGIN
            | kind::GAP
            | kind::RECORDING
            | kind::DEVICE_TIMES
            | kind::GRAPH_NODE
            | kind::BLOCKS
            | kind::COUNTED,
            1,
        ) => MARK,
        _ => return None,
    })
}

/// The fields of any other entry: its words. The first one contains the kind and the length.
pub fn words(cells: u8) -> Vec<Field> {
    (0..u16::from(cells) * 8).map(|word| field(word * 8, 8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_wire::cell::CELL_BYTES;

    #[test]
    fn every_shape_covers_every_byte_once_and_no_word_is_straddled() {
        let mut known = 0;
        for kind in 0..200 {
            for cells in 1..4 {
                let Some(fields) = fields(kind, cells) else { continue };
                known += 1;
                let mut covered = vec![0; usize::from(cells) * CELL_BYTES];
                covered[..3].fill(1);
                for (index, field) in fields.iter().enumerate() {
                    assert!([1, 2, 4, 8].contains(&field.width));
                    assert_eq!(field.at % u16::from(field.width), 0, "kind {kind} at {}", field.at);
                    for byte in &mut covered[field.at.into()..][..field.width.into()] {
                        *byte += 1;
                    }
                    if let Some(base) = field.base {
                        assert!(usize::from(base) < index && fields[usize::from(base)].width == field.width);
                    }
                }
                assert!(covered.iter().all(|count| *count == 1), "kind {kind}: {covered:?}");
            }
        }
        assert_eq!(known, 25);
    }
}
