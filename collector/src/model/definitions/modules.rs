//! Modules and their kernels' line tables.

use gputrace_wire::definition::{kind, module as field};

use super::Definitions;

impl Definitions {
    /// The definitions of launched functions, in order of arrival.
    pub fn functions(&self) -> &[u32] {
        &self.functions
    }

    /// The first piece of a module's line table and the table's length; `None` if there is no table.
    pub fn module_lines(&self, module: u32) -> Option<(u32, u64)> {
        let entry = self.of_kind(module, kind::MODULE)?;
        let first = entry.id(field::LINES);
        (first != 0).then(|| (first, entry.field(field::LINES_BYTES)))
    }

    /// Whether a module is a library: it was loaded by `cuLibraryLoadData` or from a file by its sibling.
    pub fn is_library(&self, module: u32) -> bool {
        self.of_kind(module, kind::MODULE).is_some_and(|entry| entry.field(field::FORM) == 1)
    }

    /// The pieces from `first` on, joined; `None` if some are missing or the sum is not `length`.
    pub fn joined_lines(&self, first: u32, length: usize) -> Option<Vec<u8>> {
        let (mut joined, mut next) = (Vec::new(), first);
        // An empty piece could name itself as the next one.
        while let Some((piece, more)) = self.lines(next).filter(|(piece, _)| !piece.is_empty())
            && joined.len() + piece.len() <= length
        {
            joined.extend_from_slice(piece);
            next = more;
        }
        (next == 0 && joined.len() == length && length <= self.code_bytes()).then_some(joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Definition;

    fn definitions(records: &[(u16, u32, &[u64], &str)]) -> Definitions {
        let mut definitions = Definitions::default();
        for (kind, id, fields, text) in records {
            definitions.add(&Definition {
                kind: *kind,
                id: *id,
                fields: fields.to_vec(),
                text: (*text).into(),
            });
        }
        definitions
    }

    #[test]
    fn module_s_lines_are_joined_if_all_are_there() {
        let said = definitions(&[
            (kind::LINES, 1, &[0], "and rest"),
            (kind::LINES, 2, &[1], "begin "),
            (kind::LINES, 3, &[3], "itself"),
            (kind::LINES, 4, &[9], "lost"),
            (kind::MODULE, 5, &[7, 0, 2, 14], ""),
            (kind::MODULE, 6, &[8, 0, 0, 300_000], ""),
            (kind::FUNCTION, 7, &[9, 0, 5], "kernel"),
        ]);
        assert_eq!(
            (said.module_lines(5), said.module_lines(6), said.module_lines(1)),
            (Some((2, 14)), None, None)
        );
        assert_eq!(said.joined_lines(2, 14).as_deref(), Some(&b"begin and rest"[..]));
        for (first, length) in [(2, 13), (2, 15), (3, 600), (4, 4), (5, 1), (9, 0), (1, 0)] {
            assert_eq!(said.joined_lines(first, length), None, "{first} {length}");
        }
        assert_eq!(said.functions(), [7]);
        let forms = definitions(&[(kind::MODULE, 1, &[7, 1], ""), (kind::MODULE, 2, &[7, 0], "")]);
        assert_eq!([0, 1, 2, 3].map(|module| forms.is_library(module)), [false, true, false, false]);
    }
}
