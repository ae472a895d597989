//! The curve of the last minute: columns of eighths, the newest at the right.

use std::collections::VecDeque;

use ratatui::text::{Line, Span};

use crate::palette::{Glyphs, Palette};

/// The width of `100% ┤`.
const AXIS_COLUMNS: u16 = 6;

/// The curve in that many columns and rows, with its axis. Each column shows the highest value of its
/// samples; a column in which nothing is known stays empty.
pub fn history<'t>(
    samples: &VecDeque<Option<u32>>,
    samples_max: usize,
    (columns, rows): (u16, u16),
    glyphs: &Glyphs,
    palette: Palette,
) -> Vec<Line<'t>> {
    let width = usize::from(columns.saturating_sub(AXIS_COLUMNS));
    let heights: Vec<Option<u32>> =
        (0..width).map(|column| highest(samples, samples_max, column, width)).collect();
    (0..rows)
        .map(|row| {
            // The row's lower edge, in eighths of a row from the bottom.
            let base = u32::from(rows - 1 - row) * 8;
            let whole = u32::from(rows) * 8;
            let glyph = |height: &Option<u32>| {
                let eighths = height.map_or(0, |percent| (percent.min(100) * whole).div_ceil(100));
                let index = eighths.saturating_sub(base).min(8) as usize;
                glyphs.heights.get(index).copied().unwrap_or(' ')
            };
            let curve: String = heights.iter().map(glyph).collect();
            let percent = (u32::from(rows - row) * 100) / u32::from(rows.max(1));
            let axis = if glyphs.is_ascii { '|' } else { '┤' };
            Line::from(vec![
                Span::styled(format!("{percent:>3}% {axis}"), palette.faint()),
                Span::styled(curve, palette.good()),
            ])
        })
        .collect()
}

/// The highest value among the samples of a column; the newest sample is in the last column.
fn highest(
    samples: &VecDeque<Option<u32>>,
    samples_max: usize,
    column: usize,
    columns: usize,
) -> Option<u32> {
    let missing = samples_max.saturating_sub(samples.len());
    let begin = column * samples_max / columns.max(1);
    let end = ((column + 1) * samples_max / columns.max(1)).max(begin + 1);
    (begin..end).filter_map(|at| samples.get(at.checked_sub(missing)?).copied().flatten()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(samples: &[Option<u32>], columns: u16, rows: u16) -> Vec<String> {
        let samples: VecDeque<Option<u32>> = samples.iter().copied().collect();
        let lines = history(&samples, 8, (columns, rows), &Glyphs::ASCII, Palette::new(false));
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn newest_sample_is_at_the_right() {
        assert_eq!(text(&[Some(100), Some(0), Some(50)], 14, 1), ["100% |     # -"]);
    }

    #[test]
    fn high_values_reach_the_upper_rows() {
        let lines = text(&[Some(100), Some(50), Some(51), None], 14, 2);
        assert_eq!(lines, ["100% |    # _ ", " 50% |    ### "]);
    }

    #[test]
    fn several_samples_in_a_column_show_the_highest() {
        assert_eq!(text(&[Some(0), Some(100), Some(0), Some(0)], 10, 1), ["100% |  # "]);
    }

    #[test]
    fn no_size_does_harm() {
        for columns in 0..10 {
            for rows in 0..3 {
                assert_eq!(text(&[Some(3)], columns, rows).len(), usize::from(rows));
            }
        }
    }
}
