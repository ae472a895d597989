//! Bars: `[████████░░]  78 %`.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::palette::{Glyphs, Palette};

/// A bar of so many columns with its brackets; nothing is filled where the share is not known.
pub fn bar<'t>(
    percent: Option<f64>,
    columns: u16,
    style: Style,
    glyphs: &Glyphs,
    palette: Palette,
) -> Vec<Span<'t>> {
    let inner = usize::from(columns.saturating_sub(2));
    let share = percent.unwrap_or(0.0).clamp(0.0, 100.0) / 100.0;
    let filled = (share * inner as f64).round() as usize;
    let text = |glyph: char, count: usize| glyph.to_string().repeat(count);
    vec![
        Span::raw("["),
        Span::styled(text(glyphs.full, filled), style),
        Span::styled(text(glyphs.empty, inner.saturating_sub(filled)), palette.faint()),
        Span::raw("]"),
    ]
}

/// A label of four columns, a bar, and the percentage: one line of that width.
pub fn labelled<'t>(
    label: &'t str,
    percent: Option<u32>,
    columns: u16,
    glyphs: &Glyphs,
    palette: Palette,
) -> Line<'t> {
    let percentage = percent.map_or_else(|| "  N/A".to_owned(), |percent| format!("{percent:>3} %"));
    let style = if percent.is_some() { palette.good() } else { palette.faint() };
    let mut spans = vec![Span::raw(format!("{label:<5}"))];
    spans.extend(bar(percent.map(f64::from), columns.saturating_sub(11), style, glyphs, palette));
    spans.push(Span::raw(format!(" {percentage}")));
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(percent: Option<u32>) -> String {
        labelled("GPU:", percent, 21, &Glyphs::ASCII, Palette::new(false)).to_string()
    }

    #[test]
    fn bars_are_filled_in_proportion() {
        assert_eq!(text(Some(0)), "GPU: [........]   0 %");
        assert_eq!(text(Some(50)), "GPU: [####....]  50 %");
        assert_eq!(text(Some(100)), "GPU: [########] 100 %");
        assert_eq!(text(Some(250)), "GPU: [########] 250 %");
    }

    #[test]
    fn unknown_share_is_not_zero() {
        assert_eq!(text(None), "GPU: [........]   N/A");
    }

    #[test]
    fn bars_of_no_width_do_no_harm() {
        for columns in 0..4 {
            let spans = bar(Some(50.0), columns, Style::new(), &Glyphs::UNICODE, Palette::new(true));
            assert_eq!(spans.len(), 4);
        }
    }
}
