//! Which columns of a table are shown: a narrow one leaves some out, so that its last one, the name, stays.

use ratatui::layout::Constraint;
use ratatui::widgets::{Cell, Row};

/// A column of a fixed width.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    width: u16,
    /// A narrower table leaves it out.
    from: u16,
}

impl Column {
    pub const fn new(width: u16, from: u16) -> Column {
        Column { width, from }
    }
}

/// The columns of a table of some width; the last one takes what the others leave.
#[derive(Debug)]
pub struct Columns {
    /// Whether each but the last one is shown.
    shown: Vec<bool>,
    pub widths: Vec<Constraint>,
    /// The width of the last one.
    pub last: u16,
}

impl Columns {
    pub fn of(columns: &[Column], width: u16) -> Columns {
        let shown: Vec<bool> = columns.iter().map(|column| width >= column.from).collect();
        let kept = || columns.iter().zip(&shown).filter_map(|(column, shown)| shown.then_some(column.width));
        let mut widths: Vec<Constraint> = kept().map(Constraint::Length).collect();
        widths.push(Constraint::Fill(1));
        // One blank between each two.
        let last = kept().fold(width, |rest, width| rest.saturating_sub(width + 1));
        Columns { shown, widths, last }
    }

    /// A row with those of the cells that are shown.
    pub fn row<'c, C: Into<Cell<'c>>>(&self, cells: impl IntoIterator<Item = C>) -> Row<'c> {
        let shown = self.shown.iter().copied().chain([true]);
        Row::new(cells.into_iter().zip(shown).filter_map(|(cell, shown)| shown.then(|| cell.into())))
    }
}
