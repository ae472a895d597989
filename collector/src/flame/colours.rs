//! The colours of the drawing: a hue for each kind of frame, shades of it by name, for light and dark pages.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::flame::FrameKind;

/// Shades of one kind. The name chooses the shade, so that neighbours differ.
const SHADES: u8 = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Theme {
    Light,
    Dark,
}

/// How a kind is drawn.
#[derive(Clone, Copy, Debug)]
struct Look {
    class: &'static str,
    /// Its name in the legend.
    label: &'static str,
    hue: f64,
    /// Between the hues of the first and the last shade.
    hue_spread: f64,
    saturation: f64,
    lightness: f64,
}

/// Cool greys for processes and threads, violet for user code and a pale violet for libraries, greens for
/// kernels, warm tones for copies and memsets. The lightness is that of the light form.
fn look(kind: FrameKind) -> Look {
    let look = |class, label, hue, hue_spread, saturation, lightness| Look {
        class,
        label,
        hue,
        hue_spread,
        saturation,
        lightness,
    };
    match kind {
        FrameKind::Process => look("process", "process", 215.0, 4.0, 0.14, 0.84),
        FrameKind::Thread => look("thread", "thread", 215.0, 8.0, 0.20, 0.80),
        FrameKind::Stream => look("stream", "stream", 200.0, 8.0, 0.22, 0.82),
        FrameKind::Device => look("device", "device", 190.0, 6.0, 0.18, 0.84),
        FrameKind::Rank => look("rank", "rank", 225.0, 8.0, 0.16, 0.84),
        FrameKind::Code => look("code", "user code", 250.0, 22.0, 0.52, 0.82),
        FrameKind::Library => look("library", "library code", 236.0, 18.0, 0.22, 0.87),
        FrameKind::Module => look("module", "PyTorch module", 285.0, 20.0, 0.40, 0.82),
        FrameKind::Range => look("range", "NVTX range", 318.0, 24.0, 0.44, 0.84),
        FrameKind::Call => look("call", "CUDA call", 208.0, 14.0, 0.42, 0.76),
        FrameKind::Kernel => look("kernel", "kernel", 152.0, 44.0, 0.38, 0.70),
        FrameKind::Copy => look("copy", "copy", 36.0, 12.0, 0.72, 0.72),
        FrameKind::Fill => look("memset", "memset", 50.0, 6.0, 0.55, 0.74),
        FrameKind::Graph => look("graph", "graph", 270.0, 12.0, 0.36, 0.80),
        FrameKind::Memory => look("memory", "memory", 168.0, 30.0, 0.36, 0.74),
        FrameKind::Idle => look("idle", "why idle", 12.0, 16.0, 0.55, 0.78),
        FrameKind::Other => look("other", "other", 0.0, 0.0, 0.0, 0.82),
    }
}

/// The kind's name in the legend and in tooltips.
pub(super) fn label(kind: FrameKind) -> &'static str {
    look(kind).label
}

/// The class of a frame's bar, and the one of the kind's swatch in the legend for an empty name.
pub(super) fn class(kind: FrameKind, text: &str) -> String {
    // FNV-1a: the same name has the same shade in every graph.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let shade = if text.is_empty() { SHADES / 2 } else { ((hash >> 32) % u64::from(SHADES)) as u8 };
    format!("{}{shade}", look(kind).class)
}

/// The rules for the classes of those kinds: light ones, and dark ones for pages that are dark.
pub(super) fn rules(kinds: &BTreeSet<FrameKind>) -> String {
    let rules = |theme| {
        let mut text = String::new();
        for &kind in kinds {
            for shade in 0..SHADES {
                let [r, g, b] = colour(look(kind), shade, theme);
                let _ = write!(text, ".{}{shade}{{fill:#{r:02x}{g:02x}{b:02x}}}", look(kind).class);
            }
        }
        text
    };
    format!("{}\n@media (prefers-color-scheme: dark){{{}}}\n", rules(Theme::Light), rules(Theme::Dark))
}

fn colour(look: Look, shade: u8, theme: Theme) -> [u8; 3] {
    // Neither hue nor lightness rises from shade to shade together with the other.
    let part = |shade: u8| f64::from(shade % SHADES) / f64::from(SHADES - 1) - 0.5;
    let hue = look.hue + look.hue_spread * part(shade);
    let lighter = 0.06 * part(shade * 2);
    match theme {
        Theme::Light => hsl(hue, look.saturation, look.lightness + lighter),
        Theme::Dark => {
            // At one lightness, blue is darker to the eye than green: the luminance is chosen instead.
            let wanted = 0.06 + 0.1 * (look.lightness - 0.8) + 0.4 * lighter;
            let colour = hsl(hue, (1.2 * look.saturation).min(0.45), 0.4);
            let factor = (wanted / luminance(colour)).powf(1.0 / GAMMA);
            colour.map(|channel| (f64::from(channel) * factor).round() as u8)
        }
    }
}

const GAMMA: f64 = 2.2;

/// Relative luminance as web accessibility guidelines define it, with one exponent for all levels.
fn luminance(colour: [u8; 3]) -> f64 {
    let [r, g, b] = colour.map(|channel| (f64::from(channel) / 255.0).powf(GAMMA));
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

fn hsl(hue: f64, saturation: f64, lightness: f64) -> [u8; 3] {
    let chroma = (1.0 - (2.0 * lightness - 1.0).abs()) * saturation;
    [0.0, 8.0, 4.0].map(|offset| {
        let sector = (hue / 30.0 + offset).rem_euclid(12.0);
        let level = lightness - chroma / 2.0 * (sector - 3.0).min(9.0 - sector).clamp(-1.0, 1.0);
        (level * 255.0).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hsl_gives_the_primary_colours() {
        assert_eq!(hsl(0.0, 1.0, 0.5), [255, 0, 0]);
        assert_eq!(hsl(120.0, 1.0, 0.5), [0, 255, 0]);
        assert_eq!(hsl(240.0, 1.0, 0.5), [0, 0, 255]);
        assert_eq!(hsl(77.0, 0.0, 0.5), [128, 128, 128]);
    }

    /// 7:1 is the strictest that web accessibility guidelines ask for. The texts have the colours of
    /// `drawing.css`.
    #[test]
    fn text_is_readable_on_every_colour() {
        let kinds = [
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
        ];
        for (theme, text) in [(Theme::Light, [0x1a; 3]), (Theme::Dark, [0xf2; 3])] {
            for (kind, shade) in
                kinds.into_iter().flat_map(|kind| (0..SHADES).map(move |shade| (kind, shade)))
            {
                let back = colour(look(kind), shade, theme);
                let (a, b) = (luminance(back), luminance(text));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast > 7.0, "{theme:?} {kind:?} {shade} {back:?}: {contrast:.1}");
            }
        }
        assert_eq!(rules(&kinds.into()).matches("fill:").count(), kinds.len() * usize::from(SHADES) * 2);
    }
}
