//! Line tables of CPython: from the byte offset of an instruction to the line it is of.
//!
//! A table comes from the traced process and may be invalid. Every form is decoded once, in one pass that
//! reads at least a byte in each step, into runs of instructions of one line, which are then searched.

use gputrace_wire::definition::line_table;

/// Where a run of instructions begins, and its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LineRun {
    from: u32,
    /// `None` if the instructions have no line.
    line: Option<u32>,
}

/// A decoded table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LineTable {
    /// Sorted by `from`, each once. A run without a line marks the end of a complete table.
    runs: Vec<LineRun>,
}

impl LineTable {
    /// `form` is one of [`line_table`]. `whole`: `table` is complete, not only its beginning.
    pub fn decode(form: u64, first_line: u64, table: &[u8], whole: bool) -> LineTable {
        let mut decoded = LineTable::default();
        let first_line = i64::try_from(first_line).unwrap_or(i64::MAX);
        match form {
            line_table::LNOTAB => decoded.lnotab(first_line, table, whole),
            line_table::RANGES => decoded.ranges(first_line, table),
            line_table::LOCATIONS => decoded.locations(first_line, table),
            _ => {}
        }
        decoded
    }

    /// The line of the instruction at a byte offset, `None` if it has none or none is known.
    pub fn line(&self, at: u32) -> Option<u32> {
        let after = self.runs.partition_point(|run| run.from <= at);
        self.runs.get(after.checked_sub(1)?)?.line
    }

    /// The number of runs.
    #[cfg(test)]
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// CPython 3.8 and 3.9: each pair is a step in code and line; the last line has no end.
    fn lnotab(&mut self, mut line: i64, table: &[u8], whole: bool) {
        let mut from = 0u32;
        self.run(from, Some(line));
        let (pairs, cut) = table.as_chunks::<2>();
        for [bytes, lines] in pairs {
            from = from.saturating_add(u32::from(*bytes));
            line = line.saturating_add(i64::from(lines.cast_signed()));
            self.run(from, Some(line));
        }
        if !whole || !cut.is_empty() {
            self.run(from.saturating_add(1), None);
        }
    }

    /// CPython 3.10: each pair is a range of code and the difference of its line to the last one.
    fn ranges(&mut self, mut line: i64, table: &[u8]) {
        let mut end = 0u32;
        for [bytes, lines] in table.as_chunks::<2>().0 {
            let from = end;
            end = end.saturating_add(u32::from(*bytes));
            let lines = lines.cast_signed();
            if lines != i8::MIN {
                line = line.saturating_add(lines.into());
            }
            self.run(from, (lines != i8::MIN).then_some(line));
        }
        self.run(end, None);
    }

    /// From CPython 3.11: an entry's first byte has bit 7 set, its other bytes have not.
    fn locations(&mut self, mut line: i64, table: &[u8]) {
        let mut end = 0u32;
        let mut rest = table;
        while let Some((first, after)) = rest.split_first() {
            let length = after.iter().position(|byte| byte & 0x80 != 0).unwrap_or(after.len());
            let (entry, next) = after.split_at_checked(length).unwrap_or((after, &[]));
            rest = next;
            // Only the very first byte of a table can lack the bit.
            if first & 0x80 == 0 {
                continue;
            }
            let form = first >> 3 & 0x0f;
            line = line.saturating_add(match form {
                10..=12 => i64::from(form - 10),
                13 | 14 => signed_varint(entry),
                _ => 0,
            });
            self.run(end, (form != 15).then_some(line));
            end = end.saturating_add((u32::from(first & 7) + 1) * 2);
        }
        self.run(end, None);
    }

    /// Instructions from that offset on have that line. Offsets never decrease; of two equal ones the last
    /// counts.
    fn run(&mut self, from: u32, line: Option<i64>) {
        let run = LineRun { from, line: line.and_then(|line| u32::try_from(line).ok()) };
        match self.runs.last_mut() {
            Some(last) if last.from == from => *last = run,
            Some(last) if last.line == run.line => {}
            _ => self.runs.push(run),
        }
    }
}

/// Six bits a byte, the lowest first; bit 6 says that more follow. The lowest bit is the sign.
fn signed_varint(bytes: &[u8]) -> i64 {
    let mut value = 0u64;
    for (byte, shift) in bytes.iter().zip((0..60).step_by(6)) {
        value |= u64::from(byte & 0x3f) << shift;
        if byte & 0x40 == 0 {
            break;
        }
    }
    let magnitude = (value >> 1).cast_signed();
    if value & 1 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The decoding as docs/FORMAT.md has it: one walk over the table for each question.
    fn plainly(form: u64, first_line: i64, table: &[u8], at: i64) -> Option<i64> {
        let signed = |byte: u8| i64::from(byte as i8);
        match form {
            line_table::LNOTAB => {
                let (mut line, mut address) = (first_line, 0);
                for pair in table.chunks_exact(2) {
                    address += i64::from(pair[0]);
                    if address > at {
                        break;
                    }
                    line += signed(pair[1]);
                }
                Some(line)
            }
            line_table::RANGES => {
                let (mut line, mut end) = (first_line, 0);
                for pair in table.chunks_exact(2) {
                    let start = end;
                    end += i64::from(pair[0]);
                    if pair[1] != 0x80 {
                        line += signed(pair[1]);
                    }
                    if (start..end).contains(&at) {
                        return (pair[1] != 0x80).then_some(line);
                    }
                }
                None
            }
            _ => {
                let (mut line, mut end, mut byte) = (first_line, 0, 0);
                while byte < table.len() {
                    let first = table[byte];
                    let (form, length) = (first >> 3 & 15, i64::from(first & 7) + 1);
                    byte += 1;
                    let entry = byte;
                    while byte < table.len() && table[byte] < 128 {
                        byte += 1;
                    }
                    if first < 128 {
                        continue;
                    }
                    if form == 13 || form == 14 {
                        let (mut value, mut shift) = (0i64, 0);
                        for more in &table[entry..byte] {
                            value |= i64::from(more & 63) << shift;
                            shift += 6;
                            if more & 64 == 0 || shift >= 60 {
                                break;
                            }
                        }
                        line += if value & 1 == 0 { value >> 1 } else { -(value >> 1) };
                    } else if (10..13).contains(&form) {
                        line += i64::from(form) - 10;
                    }
                    if (end..end + length * 2).contains(&at) {
                        return (form != 15).then_some(line);
                    }
                    end += length * 2;
                }
                None
            }
        }
    }

    proptest! {
        #[test]
        fn lines_of_any_table_are_those_of_the_plain_walk(
            form in 1u64..4, first_line in 0u32..100_000, table in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let whole_pairs = table.len() & !usize::from(form == line_table::LNOTAB);
            let table = &table[..whole_pairs];
            let decoded = LineTable::decode(form, first_line.into(), table, true);
            for at in (0..600).chain([5_000, 50_000, u32::MAX]) {
                let plain = plainly(form, first_line.into(), table, at.into());
                prop_assert_eq!(decoded.line(at).map(i64::from), plain.filter(|l| u32::try_from(*l).is_ok()), "{}", at);
            }
        }

        #[test]
        fn invalid_line_tables_are_decoded_in_one_pass(
            form: u64, first_line: u64, table: Vec<u8>, whole: bool, at: u32,
        ) {
            for form in [form, 0, 1, 2, 3] {
                let decoded = LineTable::decode(form, first_line, &table, whole);
                prop_assert!(decoded.runs.len() <= table.len() + 2);
                prop_assert!(decoded.runs.is_sorted_by(|a, b| a.from < b.from));
                decoded.line(at);
            }
        }
    }

    #[test]
    fn table_that_is_cut_says_nothing_of_what_follows() {
        let lnotab = [10, 1, 20, 2];
        let whole = LineTable::decode(line_table::LNOTAB, 5, &lnotab, true);
        assert_eq!([0, 10, 29, 30, 999].map(|at| whole.line(at)), [5, 6, 6, 8, 8].map(Some));
        let cut = LineTable::decode(line_table::LNOTAB, 5, &lnotab, false);
        assert_eq!([0, 10, 30, 999].map(|at| cut.line(at)), [Some(5), Some(6), Some(8), None]);
    }

    #[test]
    fn extremes_neither_wrap_nor_crash() {
        let far = [0x80 | 14 << 3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f];
        for first_line in [0, u64::MAX] {
            let decoded = LineTable::decode(line_table::LOCATIONS, first_line, &far.repeat(9), true);
            assert_eq!(decoded.line(0), None, "a line below 0 or beyond what is a line");
        }
        assert_eq!(LineTable::decode(line_table::NONE, 7, &[1, 1], true).line(0), None);
        // 3.10's range of no code, and the mark of no line.
        let ranges = LineTable::decode(line_table::RANGES, 10, &[0, 3, 4, 0, 4, 0x80, 4, 1], true);
        assert_eq!([0, 4, 8, 12].map(|at| ranges.line(at)), [Some(13), None, Some(14), None]);
    }
}
