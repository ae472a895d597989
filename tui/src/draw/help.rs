//! The page of keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::keys::{HELP, PROGRAM_HELP};
use crate::palette::Palette;

pub fn help(frame: &mut Frame<'_>, area: Rect, is_of_program: bool, palette: Palette) {
    let mut lines = vec![Line::styled("Keys", palette.heading())];
    let mut rows = HELP;
    if is_of_program {
        rows[0] = PROGRAM_HELP;
    }
    lines.extend(rows.map(|(keys, what)| Line::raw(format!("  {keys:<14} {what}"))));
    lines.push(Line::default());
    lines.push(Line::raw("Allocs are live allocations of traced programs. N/A: no driver or session says."));
    lines.push(Line::raw("TX and RX of PCIe are seen from the device: TX goes to the host."));
    lines.push(Line::raw("Memory is as of a second ago; MOST is what was live of each of a line's stacks."));
    frame.render_widget(Paragraph::new(lines), area);
}
