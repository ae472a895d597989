//! Colours and glyphs, by what the terminal can show.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;

/// Styles by meaning. Without colours, meaning is in words and weight alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Palette {
    has_colours: bool,
}

impl Palette {
    pub const fn new(has_colours: bool) -> Palette {
        Palette { has_colours }
    }

    fn coloured(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    pub fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    pub fn fair(self) -> Style {
        self.coloured(Color::Cyan)
    }

    pub fn warning(self) -> Style {
        self.coloured(Color::Yellow)
    }

    pub fn alarm(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The part of a bar that is not filled, and what is unknown.
    pub fn faint(self) -> Style {
        if self.has_colours {
            Style::new().fg(Color::DarkGray)
        } else {
            Style::new().add_modifier(Modifier::DIM)
        }
    }

    pub fn heading(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The memory bar: yellow from 70 %, red from 90 %.
    pub fn memory(self, percent: f64) -> Style {
        match percent {
            percent if percent >= 90.0 => self.alarm(),
            percent if percent >= 70.0 => self.warning(),
            _ => self.good(),
        }
    }

    /// A temperature's style and word.
    pub fn temperature(self, celsius: u32) -> (Style, &'static str) {
        match celsius {
            0..=50 => (self.good(), "COOL"),
            51..=70 => (self.fair(), "WARM"),
            71..=85 => (self.warning(), "HOT"),
            _ => (self.alarm(), "CRITICAL"),
        }
    }
}

/// The characters of bars, borders and curves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Glyphs {
    pub full: char,
    pub empty: char,
    /// Columns of eight heights, and the empty one before them.
    pub heights: [char; 9],
    pub border: border::Set<'static>,
    pub degree: &'static str,
    pub cut: char,
    pub is_ascii: bool,
}

impl Glyphs {
    pub const UNICODE: Glyphs = Glyphs {
        full: '█',
        empty: '░',
        heights: [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        border: border::ROUNDED,
        degree: "°C",
        cut: '…',
        is_ascii: false,
    };
    /// For terminals without UTF-8.
    pub const ASCII: Glyphs = Glyphs {
        full: '#',
        empty: '.',
        heights: [' ', '_', '.', ':', '-', '=', '+', '*', '#'],
        border: border::Set {
            top_left: "+",
            top_right: "+",
            bottom_left: "+",
            bottom_right: "+",
            vertical_left: "|",
            vertical_right: "|",
            horizontal_top: "-",
            horizontal_bottom: "-",
        },
        degree: " C",
        cut: '~',
        is_ascii: true,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperatures_change_their_word_above_50_70_and_85() {
        let palette = Palette::new(true);
        let words = [0, 50, 51, 70, 71, 85, 86, 200].map(|celsius| palette.temperature(celsius).1);
        assert_eq!(words, ["COOL", "COOL", "WARM", "WARM", "HOT", "HOT", "CRITICAL", "CRITICAL"]);
    }

    #[test]
    fn memory_is_yellow_from_70_and_red_from_90_percent() {
        let palette = Palette::new(true);
        assert_eq!(palette.memory(69.9), palette.good());
        assert_eq!(palette.memory(70.0), palette.warning());
        assert_eq!(palette.memory(89.9), palette.warning());
        assert_eq!(palette.memory(90.0), palette.alarm());
    }

    #[test]
    fn no_style_has_a_colour_without_colours() {
        let palette = Palette::new(false);
        let styles = [palette.good(), palette.warning(), palette.alarm(), palette.faint(), palette.heading()];
        assert!(styles.iter().all(|style| style.fg.is_none() && style.bg.is_none()));
    }
}
