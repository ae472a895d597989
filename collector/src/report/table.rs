//! Text tables. Each column is as wide as its widest cell; the first gets the width that is left.

pub use crate::names::fit;

/// A table. All columns but the first are aligned to the right.
#[derive(Clone, Debug, Default)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Headings of the columns that may be left out, the first to go first.
    optional: Vec<&'static str>,
}

/// Between two columns.
const GAP: usize = 2;

impl Table {
    pub fn new(header: &[&str]) -> Table {
        let header = header.iter().map(|cell| (*cell).to_owned()).collect();
        Table { header, rows: Vec::new(), optional: Vec::new() }
    }

    /// Sets which columns [`Table::narrow`] may leave out, the first to go first.
    pub fn optional(mut self, headings: &[&'static str]) -> Table {
        self.optional = headings.to_vec();
        self
    }

    /// Removes optional columns until the first column has `first_min` characters, or all that it needs.
    pub fn narrow(&mut self, width: usize, first_min: usize) {
        let mut optional = std::mem::take(&mut self.optional).into_iter();
        let needed = self.widths().first().copied().unwrap_or(0).min(first_min);
        while self.first_width(width) < needed {
            let Some(heading) = optional.next() else { return };
            let Some(column) = self.header.iter().position(|cell| cell == heading) else { continue };
            for row in std::iter::once(&mut self.header).chain(&mut self.rows) {
                if column < row.len() {
                    row.remove(column);
                }
            }
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How wide the first column can be on a page of `width` characters.
    pub fn first_width(&self, width: usize) -> usize {
        let others = self.widths().into_iter().skip(1).map(|width| width + GAP).sum();
        width.saturating_sub(others)
    }

    /// Replaces the text in the first column of a row.
    pub fn rename(&mut self, row: usize, text: String) {
        if let Some(cell) = self.rows.get_mut(row).and_then(|cells| cells.first_mut()) {
            *cell = text;
        }
    }

    fn widths(&self) -> Vec<usize> {
        let cells =
            |column| std::iter::once(&self.header).chain(&self.rows).filter_map(move |row| row.get(column));
        let width = |column| cells(column).map(|cell: &String| cell.chars().count()).max().unwrap_or(0);
        (0..self.header.len()).map(width).collect()
    }

    /// Lines of at most `width` characters, the header first. The first column has at least `first_min`
    /// characters, so that the figures of several small tables are aligned.
    pub fn lines(&self, width: usize, first_min: usize) -> Vec<String> {
        let widths = self.widths();
        let others: usize = widths.iter().skip(1).map(|width| width + GAP).sum();
        let content = widths.first().copied().unwrap_or(0).max(first_min);
        let first = content.min(width.saturating_sub(others)).max(8);
        std::iter::once(&self.header)
            .chain(&self.rows)
            .map(|row| {
                let mut line = String::new();
                for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                    if column == 0 {
                        line += &format!("{:<first$}", fit(cell, first));
                    } else {
                        line += &format!("{:gap$}{cell:>width$}", "", gap = GAP);
                    }
                }
                line.trim_end().to_owned()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_to_the_right() {
        let mut table = Table::new(&["kernel", "calls", "total"]);
        table.row(vec!["add".into(), "12".into(), "1.20 ms".into()]);
        table.row(vec!["a_kernel_with_a_very_long_name".into(), "1,000".into(), "3 ns".into()]);
        assert_eq!(
            table.lines(34, 0),
            [
                "kernel              calls    total",
                "add                    12  1.20 ms",
                "a_kernel_…ong_name  1,000     3 ns"
            ]
        );
        assert_eq!((table.first_width(34), table.first_width(5)), (18, 0));
        table.rename(0, "add  a.py:7".into());
        assert_eq!(table.lines(34, 0)[1], "add  a.py:7            12  1.20 ms");
        table.rename(0, "add".into());
        assert_eq!(table.lines(80, 36)[1], format!("{:<36}     12  1.20 ms", "add"));
    }

    #[test]
    fn optional_columns_are_left_out_until_the_first_is_wide_enough() {
        let table = || {
            let mut table = Table::new(&["kernel", "calls", "min", "max"]).optional(&["min", "calls"]);
            table.row(vec!["a_kernel_with_a_long_name".into(), "12".into(), "1".into(), "9".into()]);
            table.row(vec!["in all".into(), "12".into()]);
            table
        };
        let header = |width, first_min| {
            let mut table = table();
            table.narrow(width, first_min);
            table.lines(width, 0)[0].split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(header(42, 28), "kernel calls min max");
        assert_eq!(header(37, 20), "kernel calls min max");
        assert_eq!(header(36, 20), "kernel calls max");
        assert_eq!(header(26, 20), "kernel max");
        // Only optional columns are removed.
        assert_eq!(header(10, 20), "kernel max");
        let mut table = table();
        table.narrow(36, 20);
        assert_eq!(
            table.lines(36, 0)[1..],
            ["a_kernel_wit…a_long_name     12    9", "in all                       12"]
        );
    }
}
