//! A traced session: its counters, and the chosen one of its tables.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table};

use crate::palette::Palette;
use crate::scene::{Scene, SessionView};
use crate::text::{bytes, count, duration, or_unknown, printable};
use crate::view::{Tab, View};

pub fn session(frame: &mut Frame<'_>, area: Rect, (scene, view): (&Scene, &View), palette: Palette) {
    let Some(session) = scene.sessions.get(view.session) else {
        let text = "no program of yours is traced now: start one by gputrace run -- CMD";
        frame.render_widget(Paragraph::new(text), area);
        return;
    };
    let [head, body] = Layout::vertical([Constraint::Length(2), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(heading(session, view.session, scene.sessions.len(), palette)), head);
    let rows = view.rows(session);
    let has_bytes = view.tab == Tab::Copies;
    let sum: u64 = view.tab.rows(session).iter().filter_map(|row| row.total_ns).sum();
    let rows = rows.iter().map(|row| {
        let share =
            row.total_ns.filter(|_| sum > 0).map(|ns| format!("{:.1} %", ns as f64 * 100.0 / sum as f64));
        let mean = row.total_ns.and_then(|ns| ns.checked_div(row.calls));
        let moved = if has_bytes { or_unknown(row.bytes, bytes) } else { or_unknown(mean, duration) };
        Row::new([
            or_unknown(row.total_ns, duration),
            or_unknown(share, |share| share),
            count(row.calls),
            moved,
            printable(&row.name),
        ])
    });
    let header = Row::new(["TIME", "SHARE", "CALLS", if has_bytes { "BYTES" } else { "MEAN" }, "NAME"]);
    let widths = [
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Length(12),
        Constraint::Length(10),
        Constraint::Fill(1),
    ];
    frame.render_widget(Table::new(rows, widths).header(header.style(palette.heading())), body);
}

fn heading<'t>(session: &SessionView, index: usize, sessions: usize, palette: Palette) -> Vec<Line<'t>> {
    let which = if sessions > 1 { format!(" ({} of {sessions}, n: next)", index + 1) } else { String::new() };
    let lost = match session.lost {
        0 => Span::styled("nothing lost", palette.good()),
        lost => Span::styled(format!("{} lost", count(lost)), palette.alarm()),
    };
    let cost = session.hook_cost_ns.map_or_else(String::new, |ns| format!(", {ns:.0} ns a hook"));
    vec![
        Line::raw(format!("Session {}: {}{which}", session.pid, printable(&session.command))),
        Line::from(vec![
            lost,
            Span::raw(format!(
                "{cost}, {:.0} events/s, {} launches, {} calls, {} device records",
                session.events_per_second,
                count(session.launches),
                count(session.host_calls),
                count(session.device_records),
            )),
        ]),
    ]
}
