//! The formats of single tables: aligned text, CSV, JSON, Markdown.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{Cell, NamedTable};
use crate::label::units::count;
use crate::names::line_safe;
use crate::report::table::Table;
use crate::report::text::page::{NAME_MIN, wrap};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableFormat {
    /// As wide as the page; on a narrow one, the figures are below their label.
    Text {
        width: usize,
    },
    /// One table is plain CSV; several have their names above them and an empty line between them.
    Csv,
    /// An object with a list of rows for each table. A row is an object by heading, with `null` for what is
    /// not known.
    Json,
    Markdown,
}

/// The tables as one text that ends in a newline.
pub fn print(tables: &[NamedTable], format: TableFormat) -> String {
    let each = |table: &NamedTable| match format {
        TableFormat::Text { width } => text(table, width),
        TableFormat::Csv if tables.len() == 1 => csv(table),
        TableFormat::Csv => format!("{}\n{}", table.name, csv(table)),
        TableFormat::Markdown => markdown(table),
        TableFormat::Json => String::new(),
    };
    if format == TableFormat::Json {
        // Serializing plain data into memory cannot fail.
        return serde_json::to_string_pretty(&TablesByName(tables)).unwrap_or_default() + "\n";
    }
    tables.iter().map(each).collect::<Vec<_>>().join("\n")
}

struct TablesByName<'a>(&'a [NamedTable]);
struct TableRows<'a>(&'a NamedTable);
struct TableRow<'a>(&'a NamedTable, &'a [Cell]);

impl Serialize for TablesByName<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|table| (table.name, TableRows(table))))
    }
}

impl Serialize for TableRows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.rows.iter().map(|row| TableRow(self.0, row)))
    }
}

impl Serialize for TableRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.1.len()))?;
        for (heading, cell) in self.0.columns.iter().zip(self.1) {
            match cell {
                Cell::Text(text) => map.serialize_entry(heading, text)?,
                Cell::Count(value) => map.serialize_entry(heading, value)?,
                Cell::Figure(value) => map.serialize_entry(heading, &tenths(*value))?,
                Cell::Estimated(time) => map.serialize_entry(heading, &time.known_ns())?,
                Cell::Missing => map.serialize_entry(heading, &None::<u64>)?,
            }
        }
        map.end()
    }
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// The label is the last column, as nsys has it; on a page it is the first. Where the columns leave too
/// little of it, each row is a record of several lines.
fn text(table: &NamedTable, width: usize) -> String {
    let (label, figures) = match table.columns.split_last() {
        Some((label, figures)) => (*label, figures),
        None => return String::new(),
    };
    let header: Vec<&str> = [label].into_iter().chain(figures.iter().copied()).collect();
    let mut page = Table::new(&header);
    let mut records: Vec<String> = Vec::new();
    let mut label_width = 0;
    for row in &table.rows {
        let cells = row.iter().map(|cell| match cell {
            Cell::Text(text) => line_safe(text).into_owned(),
            Cell::Count(value) => count(*value),
            Cell::Figure(value) => format!("{value:.1}"),
            Cell::Estimated(time) => count(time.total_ns),
            Cell::Missing => "-".to_owned(),
        });
        let mut cells: Vec<String> = cells.collect();
        cells.rotate_right(1);
        label_width = label_width.max(cells.first().map_or(0, |label| label.chars().count()));
        records.extend(record(&header, &cells, width));
        page.row(cells);
    }
    let is_narrow = page.first_width(width) < label_width.min(NAME_MIN);
    let mut lines = wrap(&format!("{} ({})", table.title, table.name), width);
    match table.rows.is_empty() {
        true => lines.push("none".to_owned()),
        false if is_narrow => lines.extend(records),
        false => lines.extend(page.lines(width, 0)),
    }
    lines.join("\n") + "\n"
}

/// A row as its label and, below it, each figure after its heading.
fn record(header: &[&str], cells: &[String], width: usize) -> Vec<String> {
    const INDENT: &str = "  ";
    let (Some(label), Some(headings)) = (cells.first(), header.get(1..)) else { return Vec::new() };
    let inner = width.saturating_sub(INDENT.len());
    let mut lines = wrap(label, width);
    let mut line = String::new();
    for (heading, cell) in headings.iter().zip(cells.iter().skip(1)).filter(|(_, cell)| !cell.is_empty()) {
        let item = format!("{heading} {cell}");
        let needed = line.chars().count() + INDENT.len() + item.chars().count();
        if !line.is_empty() && needed <= inner {
            line += INDENT;
            line += &item;
            continue;
        }
        lines.extend(
            wrap(&line, inner)
                .into_iter()
                .filter(|line| !line.is_empty())
                .map(|line| INDENT.to_owned() + &line),
        );
        line = item;
    }
    lines.extend(wrap(&line, inner).into_iter().map(|line| INDENT.to_owned() + &line));
    lines
}

fn plain(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Count(value) => value.to_string(),
        Cell::Figure(value) => format!("{value:.1}"),
        Cell::Estimated(time) => time.total_ns.to_string(),
        Cell::Missing => String::new(),
    }
}

/// Fields with a comma, a quote or a line break are quoted, as RFC 4180 has it.
fn csv(table: &NamedTable) -> String {
    let field = |text: String| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    };
    let headings = table.columns.iter().map(|heading| (*heading).to_owned()).collect();
    let rows = table.rows.iter().map(|row| row.iter().map(plain).collect::<Vec<_>>());
    let line = |cells: Vec<String>| cells.into_iter().map(field).collect::<Vec<_>>().join(",") + "\n";
    [headings].into_iter().chain(rows).map(line).collect()
}

/// The text as it is, in a line of Markdown.
pub fn markdown_safe(text: &str) -> String {
    line_safe(text).chars().fold(String::new(), |mut all, letter| {
        if "\\`*_<>|[]".contains(letter) {
            all.push('\\');
        }
        all.push(letter);
        all
    })
}

fn markdown(table: &NamedTable) -> String {
    let cell = |cell: &Cell| match cell {
        Cell::Text(text) => markdown_safe(text),
        other => plain(other),
    };
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let last = table.columns.len().saturating_sub(1);
    let rule = (0..table.columns.len()).map(|column| if column == last { "---" } else { "---:" }.to_owned());
    let mut text = format!("**{}**\n\n", table.title);
    text += &line(table.columns.iter().map(|heading| (*heading).to_owned()).collect());
    text += &line(rule.collect());
    for row in &table.rows {
        text += &line(row.iter().map(cell).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> NamedTable {
        NamedTable {
            name: "made",
            title: "Made up",
            columns: vec!["Time (%)", "Total Time (ns)", "Name"],
            rows: vec![
                vec![Cell::Figure(66.66), Cell::Count(1200), Cell::Text("add<int, 4>".into())],
                vec![Cell::Missing, Cell::Missing, Cell::Text("says \"hi\"\n|".into())],
            ],
        }
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        let csv = print(&[made()], TableFormat::Csv);
        assert_eq!(
            csv,
            "Time (%),Total Time (ns),Name\n66.7,1200,\"add<int, 4>\"\n,,\"says \"\"hi\"\"\n|\"\n"
        );
        let two = print(&[made(), made()], TableFormat::Csv);
        assert_eq!(two, format!("made\n{csv}\nmade\n{csv}"));
    }

    #[test]
    fn json_has_rows_by_heading_and_null_for_what_is_not_known() {
        let json: serde_json::Value =
            serde_json::from_str(&print(&[made()], TableFormat::Json)).expect("it is JSON");
        assert_eq!(
            json["made"][0],
            serde_json::json!({"Time (%)": 66.7, "Total Time (ns)": 1200, "Name": "add<int, 4>"})
        );
        assert!(json["made"][1]["Time (%)"].is_null());
        assert_eq!(json["made"][1]["Name"], "says \"hi\"\n|");
    }

    #[test]
    fn markdown_shows_names_as_they_are_written() {
        let text = print(&[made()], TableFormat::Markdown);
        assert!(text.contains("| Time (%) | Total Time (ns) | Name |\n| ---: | ---: | --- |\n"), "{text}");
        assert!(text.contains("| 66.7 | 1200 | add\\<int, 4\\> |"), "{text}");
        assert_eq!(text.lines().count(), 6, "{text}");
    }

    #[test]
    fn narrow_page_has_records_instead_of_columns() {
        let long = "a sentence about something that matters, which is longer than a narrow page";
        let table = NamedTable {
            columns: vec!["Time (%)", "Total Time (ns)", "Lines", "Advice", "Name"],
            rows: vec![vec![
                Cell::Figure(66.66),
                Cell::Count(1200),
                Cell::Text(String::new()),
                Cell::Text("Do less of it, and do it later than now".into()),
                Cell::Text(long.into()),
            ]],
            ..made()
        };
        let expected = "\
Made up (made)
a sentence about something that matters,
which is longer than a narrow page
  Time (%) 66.7  Total Time (ns) 1,200
  Advice Do less of it, and do it later
  than now
";
        assert_eq!(print(&[table], TableFormat::Text { width: 40 }), expected);
    }

    #[test]
    fn text_has_the_label_first_and_fits_the_page() {
        let text = print(&[made()], TableFormat::Text { width: 40 });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Made up (made)");
        assert!(lines[1].starts_with("Name") && lines[1].ends_with("Total Time (ns)"), "{text}");
        assert!(lines[2].starts_with("add<int") && lines[2].ends_with("1,200"), "{text}");
        assert!(lines.iter().skip(1).all(|line| line.chars().count() <= 40), "{text}");
        let none = NamedTable { rows: Vec::new(), ..made() };
        assert_eq!(print(&[none], TableFormat::Text { width: 40 }), "Made up (made)\nnone\n");
    }
}
