//! The table of processes.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use crate::draw::columns::{Column, Columns};
use crate::palette::Palette;
use crate::scene::{ProcessRow, Scene};
use crate::text::{bytes, count, or_unknown, printable};
use crate::view::View;

/// The columns before the command, and how wide the table must be to have them.
const COLUMNS: [Column; 7] = [
    Column::new(12, 0),
    Column::new(3, 40),
    Column::new(9, 60),
    Column::new(10, 30),
    Column::new(5, 48),
    Column::new(8, 60),
    Column::new(6, 60),
];

pub fn processes(frame: &mut Frame<'_>, area: Rect, (scene, view): (&Scene, &View), palette: Palette) {
    let shown = view.processes(scene);
    if shown.is_empty() {
        frame.render_widget(Paragraph::new(why_empty(scene)), area);
        return;
    }
    let columns = Columns::of(&COLUMNS, area.width);
    let rows = shown.iter().map(|process| row(process, &columns, palette));
    let header = columns.row(["PID", "GPU", "USER", "MEMORY", "UTIL", "ALLOCS", "TRACED", "COMMAND"]);
    let table = Table::new(rows, columns.widths.clone())
        .header(header.style(palette.heading()))
        .row_highlight_style(palette.selected());
    let mut state = TableState::new().with_selected(Some(view.selected));
    frame.render_stateful_widget(table, area, &mut state);
}

fn why_empty(scene: &Scene) -> &'static str {
    match scene {
        _ if scene.is_opening => "",
        _ if !scene.processes.is_empty() => "No process has the text of the filter. Esc shows all.",
        _ if !scene.devices.is_empty() => "No process uses a GPU now.",
        _ if scene.sessions.is_empty() => {
            "There is nothing to watch. gputrace doctor says what is missing on this machine;\n\
             gputrace demo runs a program on a simulated GPU."
        }
        _ => "No GPU lists its processes. The traced programs are in the other tables: Tab.",
    }
}

fn row(process: &ProcessRow, columns: &Columns, palette: Palette) -> Row<'static> {
    let pid = if process.is_host_pid { format!("{} host", process.pid) } else { process.pid.to_string() };
    let text = |text: &Option<String>| or_unknown(text.as_deref(), printable);
    let traced = match process.is_traced {
        Some(true) => Cell::from("yes").style(palette.good()),
        Some(false) => Cell::from("no"),
        None => Cell::from("N/A"),
    };
    columns.row([
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
