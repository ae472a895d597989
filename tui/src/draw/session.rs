//! A traced session: its counters, and the chosen one of its tables.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Table, TableState, Wrap};

use crate::draw::columns::{Column, Columns};
use crate::draw::memory;
use crate::palette::{Glyphs, Palette};
use crate::scene::{Scene, SessionView};
use crate::text::{bytes, count, duration, or_unknown, printable, shortened};
use crate::view::{Tab, View};

/// The columns before the name, and how wide the table must be to have them.
const COLUMNS: [Column; 4] =
    [Column::new(10, 30), Column::new(8, 0), Column::new(12, 60), Column::new(10, 45)];

pub fn session(
    frame: &mut Frame<'_>,
    area: Rect,
    (scene, view): (&Scene, &View),
    glyphs: &Glyphs,
    palette: Palette,
) {
    let Some(session) = scene.sessions.get(view.session) else {
        let text = "No program of yours is traced now. To trace one: gputrace run -- CMD";
        frame.render_widget(Paragraph::new(text), area);
        return;
    };
    if let Some(problem) = &session.problem {
        let lines = vec![
            heading(session, view.session, scene.sessions.len()),
            Line::styled(printable(problem), palette.alarm()),
        ];
        frame.render_widget(Paragraph::new(lines), area);
        return;
    }
    let counters = counters(session, view.tab, palette);
    let counter_rows = if counters.width() > usize::from(area.width) { 2 } else { 1 };
    let [head, counter_area, body] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(counter_rows), Constraint::Fill(1)])
            .areas(area);
    frame.render_widget(Paragraph::new(heading(session, view.session, scene.sessions.len())), head);
    frame.render_widget(Paragraph::new(counters).wrap(Wrap { trim: true }), counter_area);
    if view.tab == Tab::Memory && !session.tables.memory.is_empty() {
        memory::memory(frame, body, (session, view), glyphs, palette);
        return;
    }
    if view.tab.rows(session).is_empty() {
        let text = "Nothing so far. Sessions that keep their last seconds only have no tables.";
        frame.render_widget(Paragraph::new(text), body);
        return;
    }
    let rows = view.rows(session);
    let mut state = TableState::new().with_selected((!rows.is_empty()).then_some(view.row));
    let has_bytes = view.tab == Tab::Copies;
    let sum: u64 = view.tab.rows(session).iter().filter_map(|row| row.total_ns).sum();
    let columns = Columns::of(&COLUMNS, body.width);
    let name_columns = usize::from(columns.last);
    let rows = rows.iter().map(|row| {
        let share =
            row.total_ns.filter(|_| sum > 0).map(|ns| format!("{:.1} %", ns as f64 * 100.0 / sum as f64));
        let mean = row.total_ns.and_then(|ns| ns.checked_div(row.calls));
        let moved = if has_bytes { or_unknown(row.bytes, bytes) } else { or_unknown(mean, duration) };
        columns.row([
            or_unknown(row.total_ns, duration),
            or_unknown(share, |share| share),
            count(row.calls),
            moved,
            shortened(&printable(&row.name), name_columns, glyphs.cut),
        ])
    });
    let header = columns.row(["TIME", "SHARE", "CALLS", if has_bytes { "BYTES" } else { "MEAN" }, "NAME"]);
    let table = Table::new(rows, columns.widths.clone())
        .header(header.style(palette.heading()))
        .row_highlight_style(palette.selected());
    frame.render_stateful_widget(table, body, &mut state);
}

fn heading<'t>(session: &SessionView, index: usize, sessions: usize) -> Line<'t> {
    let which = if sessions > 1 { format!(" ({} of {sessions}, n: next)", index + 1) } else { String::new() };
    let separator = if session.command.is_empty() { "" } else { ": " };
    Line::raw(format!("Session {}{which}{separator}{}", session.pid, printable(&session.command)))
}

fn counters<'t>(session: &SessionView, tab: Tab, palette: Palette) -> Line<'t> {
    let lost = match session.lost {
        0 => Span::styled("nothing lost", palette.good()),
        lost => Span::styled(format!("{} lost", count(lost)), palette.alarm()),
    };
    if tab == Tab::Memory {
        return Line::from(vec![lost, Span::raw(format!(", {}", memory::held(session)))]);
    }
    let cost = session.hook_cost_ns.map_or_else(String::new, |ns| format!(", {ns:.0} ns a hook"));
    let rest = format!(
        "{cost}, {} events/s, {} launches, {} calls, {} device records",
        count(session.events_per_second as u64),
        count(session.launches),
        count(session.host_calls),
        count(session.device_records),
    );
    Line::from(vec![lost, Span::raw(rest)])
}
