//! The table of processes.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::widgets::{Cell, Row, Table, TableState};

use crate::palette::{Glyphs, Palette};
use crate::scene::{ProcessRow, Scene};
use crate::text::{bytes, count, or_unknown, printable};
use crate::view::View;

pub fn processes(
    frame: &mut Frame<'_>,
    area: Rect,
    (scene, view): (&Scene, &View),
    _glyphs: &Glyphs,
    palette: Palette,
) {
    let shown = view.processes(scene);
    let rows = shown.iter().map(|process| row(process, palette));
    let header = Row::new(["PID", "GPU", "USER", "MEMORY", "UTIL", "ALLOCS", "TRACED", "COMMAND"]);
    let widths = [
        Constraint::Length(12),
        Constraint::Length(3),
        Constraint::Length(9),
        Constraint::Length(10),
        Constraint::Length(5),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Fill(1),
    ];
    let table = Table::new(rows, widths)
        .header(header.style(palette.heading()))
        .row_highlight_style(palette.selected());
    let mut state = TableState::new().with_selected((!shown.is_empty()).then_some(view.selected));
    frame.render_stateful_widget(table, area, &mut state);
}

fn row(process: &ProcessRow, palette: Palette) -> Row<'static> {
    let pid = if process.is_host_pid { format!("{} host", process.pid) } else { process.pid.to_string() };
    let text = |text: &Option<String>| or_unknown(text.as_deref(), printable);
    let traced = if process.is_traced { Cell::from("yes").style(palette.good()) } else { Cell::from("no") };
    Row::new([
        Cell::from(pid),
        Cell::from(process.device.to_string()),
        Cell::from(text(&process.user)),
        Cell::from(or_unknown(process.memory, bytes)),
        Cell::from(or_unknown(process.gpu_percent, |percent| format!("{percent} %"))),
        Cell::from(process.allocations.map_or_else(|| "-".to_owned(), count)),
        traced,
        Cell::from(text(&process.command)),
    ])
}
