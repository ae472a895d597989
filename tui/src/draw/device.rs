//! One device in detail: utilisation, memory, power, temperature, clocks, the last minute, the PCIe link.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use crate::draw::bar::{bar, labelled};
use crate::draw::history::history;
use crate::palette::{Glyphs, Palette};
use crate::scene::{DeviceView, Scene};
use crate::text::{bytes, count, or_unknown, printable, rate};

/// Samples of a minute at ten a second, which is what a monitor keeps.
const HISTORY_SAMPLES: usize = 600;
/// Rows of the panel with headings and a curve of four rows, and without headings.
pub const TALL_ROWS: u16 = 19;
pub const SHORT_ROWS: u16 = 11;

pub fn device(
    frame: &mut Frame<'_>,
    area: Rect,
    (scene, device): (&Scene, &DeviceView),
    glyphs: &Glyphs,
    palette: Palette,
) {
    let title = format!(" GPU {}: {} ", device.info.index, printable(&device.info.name));
    let block = Block::bordered().border_set(glyphs.border).title(Span::styled(title, palette.heading()));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if let Some(problem) = &device.sample.problem {
        let text = Line::styled(format!("no values: {}", printable(&problem.to_string())), palette.alarm());
        frame.render_widget(Paragraph::new(text), inner);
        return;
    }
    let is_tall = area.height >= TALL_ROWS;
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(2).areas(inner);
    let mut left_lines = Vec::new();
    let mut right_lines = Vec::new();
    let heading = |text: &'static str| Line::styled(text, palette.heading());
    if is_tall {
        left_lines.push(heading("Utilization"));
        right_lines.push(heading("Memory"));
    }
    left_lines.extend(utilization(device, left.width, glyphs, palette));
    right_lines.extend(memory((scene, device), right.width, glyphs, palette));
    if is_tall {
        left_lines.extend([Line::default(), heading("Power & Thermal")]);
        right_lines.extend([Line::default(), heading("Clocks")]);
    }
    left_lines.extend(power(device, glyphs, palette, is_tall));
    right_lines.extend(clocks(device, palette, is_tall));
    let rows = left_lines.len().max(right_lines.len()) as u16;
    frame.render_widget(Paragraph::new(left_lines), rows_of(left, 0, rows));
    frame.render_widget(Paragraph::new(right_lines), rows_of(right, 0, rows));
    let mut at = rows;
    if is_tall {
        at += 1;
        let text = heading("Utilization History (last 60s)");
        frame.render_widget(Paragraph::new(text), rows_of(inner, at, 1));
        at += 1;
    }
    let curve_rows = inner.height.saturating_sub(at + 1).min(8);
    let curve = history(&device.history, HISTORY_SAMPLES, (inner.width, curve_rows), glyphs, palette);
    frame.render_widget(Paragraph::new(curve), rows_of(inner, at, curve_rows));
    frame.render_widget(Paragraph::new(pcie(device)), rows_of(inner, at + curve_rows, 1));
}

/// Some rows of an area; as many as it has.
fn rows_of(area: Rect, first: u16, rows: u16) -> Rect {
    let first = first.min(area.height);
    Rect { y: area.y + first, height: rows.min(area.height - first), ..area }
}

fn utilization(device: &DeviceView, columns: u16, glyphs: &Glyphs, palette: Palette) -> Vec<Line<'static>> {
    let of = &device.sample.utilization;
    let rows = [
        ("GPU:", of.gpu_percent),
        ("Mem:", of.memory_percent),
        ("Enc:", of.encoder_percent),
        ("Dec:", of.decoder_percent),
    ];
    rows.map(|(label, percent)| labelled(label, percent, columns, glyphs, palette)).to_vec()
}

fn memory(
    (scene, device): (&Scene, &DeviceView),
    columns: u16,
    glyphs: &Glyphs,
    palette: Palette,
) -> Vec<Line<'static>> {
    let of = &device.sample.memory;
    let percent = device.memory_percent();
    let style = percent.map_or(palette.faint(), |percent| palette.memory(percent));
    let mut last = bar(percent, columns.saturating_sub(8), style, glyphs, palette);
    last.push(Span::raw(format!(" {}", or_unknown(percent, |percent| format!("{percent:.1} %")))));
    vec![
        Line::raw(format!("Used:   {} / {}", or_unknown(of.used, bytes), or_unknown(of.total, bytes))),
        Line::raw(format!("Free:   {}", or_unknown(of.free, bytes))),
        Line::raw(format!("Allocs: {}", allocations(scene, device))),
        Line::from(last),
    ]
}

/// Nothing is said where a process may be traced: its pid is the host's, or a session is silent.
fn allocations(scene: &Scene, device: &DeviceView) -> String {
    let mut processes = scene.processes.iter().filter(|process| process.device == device.info.index);
    let is_hidden = processes.any(|process| process.is_traced.is_none());
    match device.allocations {
        Some(allocations) => count(allocations),
        None if is_hidden => "N/A".to_owned(),
        None => "not traced".to_owned(),
    }
}

fn power(device: &DeviceView, glyphs: &Glyphs, palette: Palette, is_tall: bool) -> Vec<Line<'static>> {
    let power = device.sample.power.clone().unwrap_or_default();
    let thermal = device.sample.thermal.clone().unwrap_or_default();
    let power = match (power.power_draw_watts, power.power_limit_watts) {
        (None, _) => "Power: N/A".to_owned(),
        (Some(draw), None) => format!("Power: {draw:.0} W"),
        (Some(draw), Some(limit)) => format!("Power: {draw:.0} / {limit:.0} W"),
    };
    let temperature = match thermal.temperature_celsius {
        None => vec![Span::raw("Temp:  N/A")],
        Some(celsius) => {
            let (style, word) = palette.temperature(celsius);
            vec![Span::raw("Temp:  "), Span::styled(format!("{celsius}{} ({word})", glyphs.degree), style)]
        }
    };
    let fan = format!("Fan:   {}", or_unknown(thermal.fan_speed_percent, |percent| format!("{percent} %")));
    if is_tall {
        return vec![Line::raw(power), Line::from(temperature), Line::raw(fan)];
    }
    let mut second = temperature;
    second.push(Span::raw(format!("  {fan}")));
    vec![Line::raw(power), Line::from(second)]
}

fn clocks(device: &DeviceView, palette: Palette, is_tall: bool) -> Vec<Line<'static>> {
    let clocks = device.sample.clocks.clone().unwrap_or_default();
    let mhz = |mhz: u32| format!("{mhz} MHz");
    let reasons = device.sample.throttle.as_ref().and_then(|throttle| throttle.reasons);
    let slowed = reasons.filter(|reasons| reasons.slows()).map(|reasons| reasons.names().join(", "));
    let slowed = slowed.map(|names| Line::styled(format!("Clocks lowered: {names}"), palette.warning()));
    let mut lines = if is_tall {
        vec![
            Line::raw(format!("Graphics: {}", or_unknown(clocks.graphics_mhz, mhz))),
            Line::raw(format!("Memory:   {}", or_unknown(clocks.memory_mhz, mhz))),
            Line::raw(format!("SM:       {}", or_unknown(clocks.sm_mhz, mhz))),
        ]
    } else {
        let (sm, memory) = (or_unknown(clocks.sm_mhz, mhz), or_unknown(clocks.memory_mhz, mhz));
        vec![Line::raw(format!("Clocks: SM {sm}, memory {memory}"))]
    };
    lines.extend(slowed);
    lines
}

fn pcie(device: &DeviceView) -> Line<'static> {
    let pcie = device.sample.pcie.clone().unwrap_or_default();
    let link = match (pcie.link_gen, pcie.link_width) {
        (Some(generation), Some(width)) => format!("Gen{generation} x{width}"),
        _ => "N/A".to_owned(),
    };
    let most = match (pcie.max_link_gen, pcie.max_link_width) {
        (Some(generation), Some(width))
            if (pcie.link_gen, pcie.link_width) != (Some(generation), Some(width)) =>
        {
            format!(" of Gen{generation} x{width}")
        }
        _ => String::new(),
    };
    let (tx, rx) = (or_unknown(pcie.tx_bytes_per_sec, rate), or_unknown(pcie.rx_bytes_per_sec, rate));
    Line::raw(format!("PCIe: {link}{most} | TX: {tx} | RX: {rx}"))
}
