//! One frame as text, for `top --once` in scripts and pipes.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::draw::draw;
use crate::palette::{Glyphs, Palette};
use crate::scene::Scene;
use crate::view::View;

/// A frame of that size without styles and keys. Lines have no blanks at their ends, and the text no empty
/// lines at its end.
pub fn plain(scene: &Scene, view: &View, (columns, rows): (u16, u16), glyphs: &Glyphs) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, rows));
    let Ok(_) = terminal.draw(|frame| draw(frame, scene, view, glyphs, Palette::new(false)));
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    // The last row has the keys, which are of no use here.
    for row in 0..rows.saturating_sub(1) {
        // A wide letter's second cell has no text of its own.
        let line: String =
            (0..columns).filter_map(|column| buffer.cell((column, row))).map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    format!("{}\n", text.trim_end())
}
