//! Reads and writes a `CODE` definition: the order of its fields and of its text.

use super::code as field;

const CODE_FIELDS: usize = 9;

/// The code of a function, a module or a class body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Code<'a> {
    /// One of [`super::code_runtime`].
    pub runtime: u64,
    pub version: u64,
    pub first_line: u64,
    /// One of [`super::line_table`].
    pub table_form: u64,
    /// Length of the whole line table.
    pub table_bytes: u64,
    /// The `LINES` definition that continues `table`; 0 if none does.
    pub more: u32,
    pub flags: u64,
    pub name: &'a [u8],
    pub file: &'a [u8],
    /// The line table, or its beginning.
    pub table: &'a [u8],
}

impl<'a> Code<'a> {
    /// The fields; the text is `name`, `file` and `table`, one after the other.
    pub fn fields(&self) -> [u64; CODE_FIELDS] {
        let mut fields = [0; CODE_FIELDS];
        fields[field::RUNTIME] = self.runtime;
        fields[field::VERSION] = self.version;
        fields[field::FIRST_LINE] = self.first_line;
        fields[field::NAME_BYTES] = self.name.len() as u64;
        fields[field::FILE_BYTES] = self.file.len() as u64;
        fields[field::TABLE_FORM] = self.table_form;
        fields[field::TABLE_BYTES] = self.table_bytes;
        fields[field::MORE] = self.more.into();
        fields[field::FLAGS] = self.flags;
        fields
    }

    /// Decodes a definition's fields and text. Lengths that exceed the text are cut to it: the name comes
    /// first, then the file.
    pub fn read(fields: &[u64], text: &'a [u8]) -> Code<'a> {
        let at = |index: usize| fields.get(index).copied().unwrap_or(0);
        let cut = |text: &'a [u8], bytes: u64| {
            text.split_at(usize::try_from(bytes).unwrap_or(usize::MAX).min(text.len()))
        };
        let (name, rest) = cut(text, at(field::NAME_BYTES));
        let (file, rest) = cut(rest, at(field::FILE_BYTES));
        let (table, _) = cut(rest, at(field::TABLE_BYTES));
        Code {
            runtime: at(field::RUNTIME),
            version: at(field::VERSION),
            first_line: at(field::FIRST_LINE),
            table_form: at(field::TABLE_FORM),
            table_bytes: at(field::TABLE_BYTES),
            more: u32::try_from(at(field::MORE)).unwrap_or(0),
            flags: at(field::FLAGS),
            name,
            file,
            table,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::definition::{code_runtime, line_table};
    use proptest::prelude::*;

    #[test]
    fn code_lies_as_the_format_says() {
        let code = Code {
            runtime: code_runtime::CPYTHON,
            version: 0x030c_01f0,
            first_line: 22,
            table_form: line_table::LOCATIONS,
            table_bytes: 5,
            more: 7,
            flags: 3,
            name: b"Linear.forward",
            file: b"linear.py",
            table: &[0x80, 1],
        };
        assert_eq!(code.fields(), [1, 0x030c_01f0, 22, 14, 9, 3, 5, 7, 3]);
        assert_eq!(Code::read(&code.fields(), b"Linear.forwardlinear.py\x80\x01"), code);
    }

    proptest! {
        #[test]
        fn codes_round_trip(
            numbers: [u64; 6], more: u32, missing in 0u64..100,
            name: Vec<u8>, file: Vec<u8>, table: Vec<u8>,
        ) {
            let [runtime, version, first_line, table_form, flags, _] = numbers;
            let table_bytes = table.len() as u64 + missing;
            let text = [&name[..], &file, &table].concat();
            let code = Code {
                runtime, version, first_line, table_form, table_bytes, more, flags,
                name: &name, file: &file, table: &table,
            };
            prop_assert_eq!(Code::read(&code.fields(), &text), code);
        }

        #[test]
        fn nonsense_is_read_within_its_text(fields: Vec<u64>, text: Vec<u8>) {
            let code = Code::read(&fields, &text);
            prop_assert!(code.name.len() + code.file.len() + code.table.len() <= text.len());
        }
    }
}
