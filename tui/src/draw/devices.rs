//! All devices, a line each, where there are several.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::draw::bar::bar;
use crate::palette::{Glyphs, Palette};
use crate::scene::{DeviceView, Scene};
use crate::text::{bytes, or_unknown, printable};
use crate::view::View;

/// What a line takes besides the name and the bars.
const FIXED_COLUMNS: u16 = 45;
const NAME_COLUMNS_MIN: u16 = 14;
const NAME_COLUMNS_MAX: u16 = 32;
const BAR_COLUMNS_MIN: u16 = 10;
const BAR_COLUMNS_MAX: u16 = 60;

pub fn devices(
    frame: &mut Frame<'_>,
    area: Rect,
    (scene, view): (&Scene, &View),
    glyphs: &Glyphs,
    palette: Palette,
) {
    // The chosen device stays in sight.
    let first = view.device.saturating_sub(usize::from(area.height).saturating_sub(1));
    let lines: Vec<Line<'_>> = scene
        .devices
        .iter()
        .enumerate()
        .skip(first)
        .take(usize::from(area.height))
        .map(|(index, device)| {
            let line = line(device, area.width, glyphs, palette);
            if index == view.device { line.style(palette.selected()) } else { line }
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn line<'t>(device: &DeviceView, columns: u16, glyphs: &Glyphs, palette: Palette) -> Line<'t> {
    let free = columns.saturating_sub(FIXED_COLUMNS);
    let name_columns = free.saturating_sub(2 * BAR_COLUMNS_MIN).clamp(NAME_COLUMNS_MIN, NAME_COLUMNS_MAX);
    let bar_columns = (free.saturating_sub(name_columns) / 2).clamp(BAR_COLUMNS_MIN, BAR_COLUMNS_MAX);
    let name_columns = usize::from(name_columns);
    let name: String = printable(&device.info.name).chars().take(name_columns).collect();
    let mut spans = vec![Span::raw(format!("{:>3} {name:<name_columns$} ", device.info.index))];
    let sample = &device.sample;
    if let Some(problem) = &sample.problem {
        spans.push(Span::styled(printable(&problem.to_string()), palette.alarm()));
        return Line::from(spans);
    }
    let gpu = sample.utilization.gpu_percent;
    spans.push(Span::raw("GPU"));
    spans.extend(bar(gpu.map(f64::from), bar_columns, palette.good(), glyphs, palette));
    spans.push(Span::raw(format!("{:>6} Mem", or_unknown(gpu, |percent| format!("{percent} %")))));
    let memory = device.memory_percent();
    let style = memory.map_or(palette.faint(), |percent| palette.memory(percent));
    spans.extend(bar(memory, bar_columns, style, glyphs, palette));
    spans.push(Span::raw(format!(" {:>10} ", or_unknown(sample.memory.used, bytes))));
    let thermal = sample.thermal.as_ref().and_then(|thermal| thermal.temperature_celsius);
    spans.push(match thermal {
        Some(celsius) => {
            Span::styled(format!("{celsius:>3}{}", glyphs.degree), palette.temperature(celsius).0)
        }
        None => Span::raw("  N/A"),
    });
    let watts = sample.power.as_ref().and_then(|power| power.power_draw_watts);
    spans.push(Span::raw(format!(" {:>6}", or_unknown(watts, |watts| format!("{watts:.0} W")))));
    Line::from(spans)
}
