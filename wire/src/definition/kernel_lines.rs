//! Reads and writes the `LINES` of a `MODULE`: the module's line table, and which part of it belongs to
//! which kernel.
//!
//! ```text
//!  byte 0   sequences u32 │ table bytes u32 │ string bytes u32 │ 0 u32
//!  then     the sequences: offset u32 │ name bytes u32 │ address u64 │ name
//!  then     the table, the strings
//! ```
//!
//! The table is the image's `.debug_line` unchanged, the strings are its `.debug_line_str`. In an image
//! the loader fills in the address at which a kernel's rows begin. A sequence names the kernel, the
//! offset of that address in the table, and the address relative to the kernel's start.

/// The bytes before the sequences, and those of each sequence before its name.
const HEAD_BYTES: usize = 16;

/// The rows of a line table that belong to one kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sequence<'a> {
    /// Offset in the table of the 8-byte address at which the rows begin.
    pub offset: u32,
    /// The value of that address, relative to the kernel's start.
    pub address: u64,
    /// The kernel's name.
    pub name: &'a [u8],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelLines<'a> {
    sequences: &'a [u8],
    count: u32,
    pub table: &'a [u8],
    pub strings: &'a [u8],
}

impl<'a> KernelLines<'a> {
    /// `None` if a length is wrong: a part is then missing.
    pub fn read(bytes: &'a [u8]) -> Option<KernelLines<'a>> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let [count, table, strings] = [0, 4, 8].map(|at| half(head, at));
        let strings = rest.len().checked_sub(usize::try_from(strings?).ok()?)?;
        let table = strings.checked_sub(usize::try_from(table?).ok()?)?;
        let (rest, strings) = rest.split_at_checked(strings)?;
        let (sequences, table) = rest.split_at_checked(table)?;
        Some(KernelLines { sequences, count: count?, table, strings })
    }

    pub fn sequences(&self) -> impl Iterator<Item = Sequence<'a>> {
        let mut rest = self.sequences;
        (0..self.count).map_while(move |_| {
            let (head, behind) = rest.split_at_checked(HEAD_BYTES)?;
            let (name, behind) = behind.split_at_checked(usize::try_from(half(head, 4)?).ok()?)?;
            rest = behind;
            let address = u64::from(half(head, 8)?) | u64::from(half(head, 12)?) << 32;
            Some(Sequence { offset: half(head, 0)?, address, name })
        })
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Writes the encoding into a buffer. After a `None` the buffer's content is invalid.
#[derive(Debug)]
pub struct Writer<'r> {
    buffer: &'r mut [u8],
    length: usize,
    count: u32,
}

impl<'r> Writer<'r> {
    pub fn new(buffer: &'r mut [u8]) -> Writer<'r> {
        Writer { buffer, length: HEAD_BYTES, count: 0 }
    }

    pub fn sequence(&mut self, sequence: Sequence<'_>) -> Option<()> {
        let name_bytes = u32::try_from(sequence.name.len()).ok()?;
        self.put(&sequence.offset.to_le_bytes())?;
        self.put(&name_bytes.to_le_bytes())?;
        self.put(&sequence.address.to_le_bytes())?;
        self.put(sequence.name)?;
        self.count = self.count.checked_add(1)?;
        Some(())
    }

    /// To be called after the last sequence. Returns the total length, and the part of the buffer for the
    /// table and the strings, one after the other.
    pub fn rest(self, table_bytes: usize, string_bytes: usize) -> Option<(usize, &'r mut [u8])> {
        let Writer { buffer, length, count } = self;
        let bytes = table_bytes.checked_add(string_bytes)?;
        let (before, behind) = buffer.split_at_mut_checked(length)?;
        let rest = behind.get_mut(..bytes)?;
        let head = [count, u32::try_from(table_bytes).ok()?, u32::try_from(string_bytes).ok()?, 0];
        for (to, value) in before.get_mut(..HEAD_BYTES)?.as_chunks_mut().0.iter_mut().zip(head) {
            *to = value.to_le_bytes();
        }
        Some((length + bytes, rest))
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.length.checked_add(bytes.len())?;
        self.buffer.get_mut(self.length..end)?.copy_from_slice(bytes);
        self.length = end;
        Some(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(
        sequences: &[(u32, u64, Vec<u8>)],
        table: &[u8],
        strings: &[u8],
        buffer: &mut [u8],
    ) -> Option<usize> {
        let mut writer = Writer::new(buffer);
        for (offset, address, name) in sequences {
            writer.sequence(Sequence { offset: *offset, address: *address, name })?;
        }
        let (length, rest) = writer.rest(table.len(), strings.len())?;
        rest.copy_from_slice(&[table, strings].concat());
        Some(length)
    }

    #[test]
    fn kernel_lines_lie_as_the_format_says() {
        let mut buffer = [7; 64];
        let length = written(&[(0x59, 2, b"add".to_vec())], b"table", b"s", &mut buffer).unwrap();
        let head = [1, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        let sequence = [0x59, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(buffer[..length], [&head[..], &sequence, b"addtables"].concat());
        assert_eq!(written(&[(0x59, 2, b"add".to_vec())], b"table", b"s", &mut [0; 40]), None);
    }

    proptest! {
        #[test]
        fn kernel_lines_round_trip(
            sequences in prop::collection::vec((any::<u32>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..9)), 0..9),
            table: Vec<u8>, strings: Vec<u8>, missing in 1usize..9,
        ) {
            let mut buffer = vec![1; 1024];
            let length = written(&sequences, &table, &strings, &mut buffer).unwrap();
            let lines = KernelLines::read(&buffer[..length]).unwrap();
            let read: Vec<_> = lines.sequences().map(|s| (s.offset, s.address, s.name.to_vec())).collect();
            prop_assert_eq!((read, lines.table, lines.strings), (sequences, &table[..], &strings[..]));
            // Reading a cut encoding must not read past its end.
            if let Some(lines) = KernelLines::read(&buffer[..length.saturating_sub(missing)]) {
                prop_assert!(lines.sequences().map(|s| s.name.len() + HEAD_BYTES).sum::<usize>() <= length);
            }
        }

        #[test]
        fn nonsense_is_read_within_the_bytes(bytes: Vec<u8>) {
            if let Some(lines) = KernelLines::read(&bytes) {
                let named: usize = lines.sequences().map(|sequence| sequence.name.len() + HEAD_BYTES).sum();
                prop_assert!(named + lines.table.len() + lines.strings.len() + HEAD_BYTES <= bytes.len());
            }
        }
    }
}
