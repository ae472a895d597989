//! The flamegraph as an interactive SVG, drawn by inferno.

use std::io;

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap, StrokeColor};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};

use crate::flame::folded::folded_stack;
use crate::flame::{Flame, FrameKind};
use crate::label::units::{duration, percent};

/// Frames narrower than this percentage of the width are not drawn: a quarter of a pixel at 1 200 pixels.
const MIN_WIDTH_PERCENT: f64 = 0.02;

const BACKGROUND: Color = Color { r: 250, g: 250, b: 248 };
const ROOT: Color = Color { r: 226, g: 228, b: 230 };

impl Flame {
    /// One line about the sum of the weights.
    pub fn subtitle(&self) -> String {
        let what = if self.host_time { "host time" } else { "device time" };
        let mut text = format!("{}: {} of {what}", self.program, duration(self.total_ns()));
        if !self.host_time && self.coverage < 1.0 {
            text += &format!(", for {} of the operations", percent(self.coverage));
        }
        if self.simulated {
            text += ", simulated device";
        }
        text
    }

    /// Draws the flamegraph. Without any weight, the drawing says that nothing was recorded.
    pub fn svg(&self) -> io::Result<Vec<u8>> {
        let mut colours = PaletteMap::default();
        colours.insert("", ROOT);
        let mut lines = Vec::new();
        for (line, us) in self.weighted() {
            let stack = folded_stack(line);
            for (text, frame) in stack.split(';').zip(&line.frames) {
                colours.insert(text, colour(frame.kind, text));
            }
            lines.push(format!("{stack} {us}"));
        }
        let mut subtitle = self.subtitle();
        if lines.is_empty() {
            colours.insert("nothing was recorded", ROOT);
            lines.push("nothing was recorded 1".to_owned());
            subtitle = format!("{}: no CUDA work was recorded", self.program);
        }
        // inferno expects a stack directly before those that continue it. Sorting by frames does not give
        // that: some characters sort before `;`.
        lines.sort_unstable();
        let mut options = Options::default();
        options.title = match self.simulated {
            true => format!("{} (simulated)", self.title()),
            false => self.title().to_owned(),
        };
        options.subtitle = Some(subtitle);
        options.count_name = "µs".to_owned();
        options.name_type = "Frame:".to_owned();
        options.min_width = MIN_WIDTH_PERCENT;
        options.frame_height = 18;
        options.font_type = "monospace".to_owned();
        options.font_size = 12;
        options.font_width = 0.6;
        options.text_truncate_direction = TextTruncateDirection::Right;
        options.bgcolors = Some(BackgroundColor::Flat(BACKGROUND));
        options.stroke_color = StrokeColor::Color(BACKGROUND);
        options.palette_map = Some(&mut colours);
        let mut svg = Vec::new();
        from_lines(&mut options, lines.iter().map(String::as_str), &mut svg).map_err(io::Error::other)?;
        Ok(with_thin_strokes(with_named_root(svg)))
    }
}

/// Labels the root bar `all`: inferno leaves its label empty.
fn with_named_root(svg: Vec<u8>) -> Vec<u8> {
    const TITLE: &str = "<title>all (";
    const EMPTY: &str = "></text>";
    let text = String::from_utf8_lossy(&svg);
    let named = text.find(TITLE).and_then(|title| {
        let (before, after) = text.split_at_checked(title)?;
        let (bar, rest) = after.split_once("</g>")?;
        let (label, end) = bar.split_once(EMPTY)?;
        Some(format!("{before}{label}>all</text>{end}</g>{rest}"))
    });
    named.map_or(svg, String::into_bytes)
}

/// Makes the lines between neighbours thinner: inferno's are as wide as the narrow frames.
fn with_thin_strokes(svg: Vec<u8>) -> Vec<u8> {
    const WIDE: &str = "stroke-width:1; }";
    const THIN: &str = "stroke-width:0.5; }";
    String::from_utf8_lossy(&svg).replacen(WIDE, THIN, 1).into_bytes()
}

/// Cool greys for processes and threads, violet for user code and a pale violet for libraries, greens for
/// kernels, warm tones for copies and fills. All are light enough for black text. The name varies the shade,
/// so that neighbours differ.
fn colour(kind: FrameKind, text: &str) -> Color {
    let (hue, spread, saturation, lightness) = match kind {
        FrameKind::Process => (215.0, 4.0, 0.14, 0.84),
        FrameKind::Thread => (215.0, 8.0, 0.20, 0.80),
        FrameKind::Stream => (200.0, 8.0, 0.22, 0.82),
        FrameKind::Device => (190.0, 6.0, 0.18, 0.84),
        FrameKind::Rank => (225.0, 8.0, 0.16, 0.84),
        FrameKind::Code => (250.0, 22.0, 0.52, 0.82),
        FrameKind::Library => (236.0, 18.0, 0.22, 0.87),
        FrameKind::Range => (318.0, 24.0, 0.44, 0.84),
        FrameKind::Call => (208.0, 14.0, 0.42, 0.76),
        FrameKind::Kernel => (152.0, 44.0, 0.38, 0.70),
        FrameKind::Copy => (36.0, 12.0, 0.72, 0.72),
        FrameKind::Fill => (50.0, 6.0, 0.55, 0.74),
        FrameKind::Graph => (270.0, 12.0, 0.36, 0.80),
        FrameKind::Other => (0.0, 0.0, 0.0, 0.82),
    };
    // FNV-1a: the same name has the same shade in every graph.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let part = |shift: u32| f64::from((hash >> shift) as u16) / f64::from(u16::MAX) - 0.5;
    hsl(hue + spread * part(16), saturation, lightness + 0.06 * part(40))
}

fn hsl(hue: f64, saturation: f64, lightness: f64) -> Color {
    let chroma = (1.0 - (2.0 * lightness - 1.0).abs()) * saturation;
    let channel = |offset: f64| {
        let sector = (hue / 30.0 + offset).rem_euclid(12.0);
        let level = lightness - chroma / 2.0 * (sector - 3.0).min(9.0 - sector).clamp(-1.0, 1.0);
        (level * 255.0).round() as u8
    };
    Color { r: channel(0.0), g: channel(8.0), b: channel(4.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hsl_gives_the_primary_colours() {
        assert_eq!(hsl(0.0, 1.0, 0.5), Color { r: 255, g: 0, b: 0 });
        assert_eq!(hsl(120.0, 1.0, 0.5), Color { r: 0, g: 255, b: 0 });
        assert_eq!(hsl(240.0, 1.0, 0.5), Color { r: 0, g: 0, b: 255 });
        assert_eq!(hsl(77.0, 0.0, 0.5), Color { r: 128, g: 128, b: 128 });
    }

    /// Relative luminance as web accessibility guidelines define it; 7:1 is their strictest.
    #[test]
    fn black_text_is_readable_on_every_colour() {
        let linear = |c: u8| (f64::from(c) / 255.0).powf(2.2);
        for kind in [
            FrameKind::Process,
            FrameKind::Thread,
            FrameKind::Stream,
            FrameKind::Device,
            FrameKind::Rank,
            FrameKind::Code,
            FrameKind::Library,
            FrameKind::Range,
            FrameKind::Call,
            FrameKind::Kernel,
            FrameKind::Copy,
            FrameKind::Fill,
            FrameKind::Graph,
            FrameKind::Other,
        ] {
            for text in 0..200 {
                let c = colour(kind, &text.to_string());
                let luminance = 0.2126 * linear(c.r) + 0.7152 * linear(c.g) + 0.0722 * linear(c.b);
                assert!((luminance + 0.05) / 0.05 > 7.0, "{kind:?} {c:?}");
            }
        }
    }
}
