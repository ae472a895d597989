//! The whole frame: header, devices, the table, the footer.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::draw::{device, devices, help, processes, session};
use crate::palette::{Glyphs, Palette};
use crate::scene::Scene;
use crate::text::printable;
use crate::view::{Tab, View};

/// Rows that the table keeps, however tall the device's panel could be.
const TABLE_ROWS_MIN: u16 = 6;
/// Rows that the curve gets on a tall terminal, beyond those of the tall panel.
const CURVE_ROWS_MORE: u16 = 4;
/// Lines of the list of devices; it scrolls.
const DEVICE_LINES_MAX: u16 = 8;

/// Draws one frame of any size.
pub fn draw(frame: &mut Frame<'_>, scene: &Scene, view: &View, glyphs: &Glyphs, palette: Palette) {
    let area = frame.area();
    let list_rows = match scene.devices.len() {
        0 | 1 => 0,
        several => u16::try_from(several).unwrap_or(u16::MAX).min(DEVICE_LINES_MAX).min(area.height / 4),
    };
    let panel_rows = panel_rows(area.height.saturating_sub(list_rows), scene.devices.is_empty());
    let [header_area, list_area, panel_area, body_area, footer_area] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(list_rows),
        Constraint::Length(panel_rows),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(header(scene, view, palette)), header_area);
    if view.shows_help {
        help::help(frame, list_area.union(panel_area).union(body_area), view.is_of_program, palette);
    } else {
        devices::devices(frame, list_area, (scene, view), glyphs, palette);
        if let Some(chosen) = scene.devices.get(view.device) {
            device::device(frame, panel_area, (scene, chosen), glyphs, palette);
        }
        body(frame, body_area, scene, view, glyphs, palette);
    }
    frame.render_widget(Paragraph::new(footer(view, palette)), footer_area);
    if glyphs.is_ascii {
        replace_others(frame);
    }
}

/// What is not ASCII, in names of other programs for the most part.
fn replace_others(frame: &mut Frame<'_>) {
    for cell in &mut frame.buffer_mut().content {
        match cell.symbol() {
            symbol if symbol.is_ascii() => {}
            "µ" => drop(cell.set_char('u')),
            _ => drop(cell.set_char('?')),
        }
    }
}

/// The height of the device's panel: tall where there is room, none on a terminal of few rows.
fn panel_rows(height: u16, is_empty: bool) -> u16 {
    let free = height.saturating_sub(2 + TABLE_ROWS_MIN);
    match free {
        _ if is_empty => 0,
        device::TALL_ROWS.. => device::TALL_ROWS + ((free - device::TALL_ROWS) / 3).min(CURVE_ROWS_MORE),
        device::SHORT_ROWS.. => device::SHORT_ROWS,
        free => free,
    }
}

fn header<'t>(scene: &Scene, view: &View, palette: Palette) -> Line<'t> {
    let first = scene.devices.first().map(|device| &device.info);
    let driver = first.and_then(|info| info.driver_version.as_deref());
    let driver = driver.map_or_else(String::new, |version| format!(", driver {}", printable(version)));
    let devices = match scene.devices.len() {
        0 if scene.is_opening => "reading the devices".to_owned(),
        0 => "no GPU".to_owned(),
        1 => "1 GPU".to_owned(),
        several => format!("{several} GPUs"),
    };
    let title = if view.is_of_program { "gputrace run --live" } else { "gputrace top" };
    let mut spans = vec![
        Span::styled(title, palette.heading()),
        Span::raw(format!("  {devices}{driver}  {}", scene.time)),
    ];
    if view.is_paused {
        spans.push(Span::styled("  paused", palette.warning()));
    }
    if !view.filter.is_empty() && !view.edits_filter {
        spans.push(Span::styled(format!("  filter: {}", view.filter), palette.warning()));
    }
    Line::from(spans)
}

fn body(frame: &mut Frame<'_>, area: Rect, scene: &Scene, view: &View, glyphs: &Glyphs, palette: Palette) {
    let problems = u16::try_from(scene.problems.len()).unwrap_or(u16::MAX).min(area.height / 3);
    let [problem_area, tab_area, table_area] =
        Layout::vertical([Constraint::Length(problems), Constraint::Length(1), Constraint::Fill(1)])
            .areas(area);
    let lines = scene.problems.iter().map(|problem| Line::styled(printable(problem), palette.alarm()));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), problem_area);
    frame.render_widget(Paragraph::new(tabs(view, palette)), tab_area);
    match view.tab {
        Tab::Processes => processes::processes(frame, table_area, (scene, view), palette),
        _ => session::session(frame, table_area, (scene, view), glyphs, palette),
    }
}

fn tabs<'t>(view: &View, palette: Palette) -> Line<'t> {
    let mut spans = Vec::new();
    for (index, tab) in Tab::ALL.into_iter().enumerate() {
        let text = format!(" {} {} ", index + 1, tab.name());
        spans.push(if tab == view.tab { Span::styled(text, palette.selected()) } else { Span::raw(text) });
    }
    if view.tab == Tab::Processes {
        spans.push(Span::styled(format!("  by {}", view.order.name()), palette.faint()));
    }
    Line::from(spans)
}

fn footer<'t>(view: &View, palette: Palette) -> Line<'t> {
    if let Some(pending) = view.pending {
        let name = if pending.signal == libc::SIGKILL { "SIGKILL" } else { "SIGTERM" };
        let text = format!("send {name} to process {}? y: yes, any other key: no", pending.pid);
        return Line::styled(text, palette.alarm());
    }
    if view.edits_filter {
        return Line::raw(format!("filter: {}_  Enter: keep, Esc: show all", view.filter));
    }
    if !view.message.is_empty() {
        return Line::styled(printable(&view.message), palette.warning());
    }
    if view.is_of_program {
        let keys = "q show output  Ctrl-C interrupt  h help  Tab table  / filter  p pause";
        return Line::styled(keys, palette.faint());
    }
    Line::styled("q quit  h help  Tab table  s sort  / filter  p pause  t end a process", palette.faint())
}
