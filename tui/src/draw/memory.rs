//! The memory of a traced session: which line holds how much, and how fast it allocates.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::{Table, TableState};

use crate::draw::columns::{Column, Columns};
use crate::palette::{Glyphs, Palette};
use crate::scene::{MemoryRow, SessionView};
use crate::text::{bytes, count, printable, shortened};
use crate::view::View;

/// The columns before the name, and how wide the table must be to have them.
const COLUMNS: [Column; 6] = [
    Column::new(10, 0),
    Column::new(8, 45),
    Column::new(9, 60),
    Column::new(10, 70),
    Column::new(12, 100),
    Column::new(10, 112),
];

pub fn memory(
    frame: &mut Frame<'_>,
    area: Rect,
    (session, view): (&SessionView, &View),
    glyphs: &Glyphs,
    palette: Palette,
) {
    let rows = view.memory_rows(session);
    let mut state = TableState::new().with_selected((!rows.is_empty()).then_some(view.row));
    let columns = Columns::of(&COLUMNS, area.width);
    let name_columns = usize::from(columns.last);
    let rows = rows.iter().map(|row| {
        columns.row([
            bytes(row.live_bytes),
            share(row, session),
            count(row.live),
            row.allocations_per_second.map_or_else(|| "-".to_owned(), per_second),
            count(row.allocations),
            bytes(row.most_bytes),
            shortened(&named(row), name_columns, glyphs.cut),
        ])
    });
    let header = columns.row(["LIVE", "SHARE", "COUNT", "ALLOCS/S", "ALLOCS", "MOST", "LINE"]);
    let table = Table::new(rows, columns.widths.clone())
        .header(header.style(palette.heading()))
        .row_highlight_style(palette.selected());
    frame.render_stateful_widget(table, area, &mut state);
}

/// `1.5 GiB held on devices, at most 2.0 GiB`; peaks of several processes are at different times.
pub fn held(session: &SessionView) -> String {
    let now = format!("{} held on devices", bytes(session.held_bytes));
    match session.processes.len() {
        0 | 1 => format!("{now}, at most {}", bytes(session.peak_bytes)),
        several => format!("{now} by {several} processes"),
    }
}

/// Slow rates have a decimal, since a leak may be slow.
fn per_second(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 { format!("{rate:.1}") } else { count(rate.round() as u64) }
}

/// Of what is held on devices; memory of the host and of other processes is no part of that.
fn share(row: &MemoryRow, session: &SessionView) -> String {
    if !row.is_on_device || session.held_bytes == 0 {
        return "-".to_owned();
    }
    format!("{:.1} %", row.live_bytes as f64 * 100.0 / session.held_bytes as f64)
}

fn named(row: &MemoryRow) -> String {
    let name = printable(&row.name);
    if row.kind == "device" { name } else { format!("{name} ({})", printable(&row.kind)) }
}
