//! The tables of docs/FORMAT.md that have a marker.

const DOCUMENT: &str = include_str!("../../../docs/FORMAT.md");

#[derive(Debug)]
pub struct Table {
    /// The words of the HTML comment above the table.
    pub marker: Vec<String>,
    /// The cells of each row, without the heading; code marks are taken off.
    pub rows: Vec<Vec<String>>,
}

pub fn tables() -> Vec<Table> {
    let mut tables = Vec::new();
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        let Some(marker) = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        let heading = lines.next().unwrap_or("");
        let rule = lines.next().unwrap_or("");
        assert!(heading.starts_with('|') && rule.starts_with("|---"), "no table below the marker {marker}");
        let rows = lines.by_ref().take_while(|line| line.starts_with('|')).map(cells).collect();
        tables.push(Table { marker: marker.split(' ').map(str::to_owned).collect(), rows });
    }
    tables
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.strip_prefix('|').and_then(|rest| rest.strip_suffix('|')).unwrap_or("");
    inner.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
}

impl Table {
    /// Whether the first columns are these rows, in this order; the columns after are prose.
    pub fn assert_begins_with(&self, expected: &[Vec<String>]) {
        for (row, expected) in self.rows.iter().zip(expected) {
            assert_eq!(row.get(..expected.len()), Some(&expected[..]), "{:?}", self.marker);
        }
        assert_eq!(self.rows.len(), expected.len(), "rows of {:?}", self.marker);
    }
}
