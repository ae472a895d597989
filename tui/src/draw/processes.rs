//! The table of processes.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use crate::palette::Palette;
use crate::scene::{ProcessRow, Scene};
use crate::text::{bytes, count, or_unknown, printable};
use crate::view::View;

pub fn processes(frame: &mut Frame<'_>, area: Rect, (scene, view): (&Scene, &View), palette: Palette) {
    let shown = view.processes(scene);
    if shown.is_empty() {
        frame.render_widget(Paragraph::new(why_empty(scene)), area);
        return;
    }
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

fn row(process: &ProcessRow, palette: Palette) -> Row<'static> {
    let pid = if process.is_host_pid { format!("{} host", process.pid) } else { process.pid.to_string() };
    let text = |text: &Option<String>| or_unknown(text.as_deref(), printable);
    let traced = match process.is_traced {
        Some(true) => Cell::from("yes").style(palette.good()),
        Some(false) => Cell::from("no"),
        None => Cell::from("N/A"),
    };
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
