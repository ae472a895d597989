//! The flamegraph as an SVG that a browser zooms and searches, and that is whole without its script.
//!
//! Names in a trace are hostile: each goes through `escaped` into text, and none into an attribute, a style
//! or the script.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::flame::bars::{Bar, bars, keep_widest};
use crate::flame::{Flame, FlameLine, FrameKind, colours};
use crate::label::units::{count, percent};

/// A browser stays quick with so many bars.
const BARS_MAX: usize = 5_000;

/// Without a script the drawing is so wide; a browser's script fits it to the window.
const WIDTH: f64 = 1_000.0;
/// Around the drawing, also in `drawing.js`.
const PAD: f64 = 10.0;
const ROW: usize = 18;
/// The width of a character of 12 pixels, rounded up from the widest of the fonts in `drawing.css`.
const CELL: f64 = 7.3;

const STYLE: &str = include_str!("drawing.css");
const SCRIPT: &str = include_str!("drawing.js");

/// Bars whose weight is an estimate with a large error.
const UNSURE_RULE: &str = ".unsure{fill-opacity:0.55;stroke-dasharray:3 2}\n";

/// What is around the bars.
pub(super) struct Head {
    pub title: String,
    pub subtitle: String,
    /// The rules for the classes of bars.
    pub rules: String,
    /// Swatches: a class and its label.
    pub legend: Vec<(String, &'static str)>,
}

/// How one bar is drawn.
pub(super) struct Painted {
    pub class: String,
    /// The second line of the tooltip.
    pub figures: String,
    /// The third one: what the bar is.
    pub kind: String,
}

impl Flame {
    /// Draws the flamegraph. Without any weight, the drawing says that nothing was recorded.
    pub fn svg(&self) -> String {
        let total_ns = self.total_ns();
        let (bars, left_out) = drawn_bars(&self.lines);
        let kinds: BTreeSet<FrameKind> = bars.iter().filter_map(|bar| Some(bar.frame?.kind)).collect();
        let is_unsure =
            |bar: &Bar<'_>| self.estimate.as_ref().is_some_and(|estimate| estimate.is_unsure(bar));
        let mut head = Head {
            title: self.title(),
            subtitle: self.subtitle(),
            rules: colours::rules(&kinds),
            legend: kinds.iter().map(|&kind| (colours::class(kind, ""), colours::label(kind))).collect(),
        };
        if bars.iter().any(is_unsure) {
            head.rules += UNSURE_RULE;
            head.legend.push(("root unsure".to_owned(), "error over 10%"));
        }
        drawing(&head, &bars, left_out, total_ns, |bar| {
            let (class, kind) = match bar.frame {
                Some(frame) => (colours::class(frame.kind, &frame.text), colours::label(frame.kind)),
                None => ("root".to_owned(), "root"),
            };
            let share = percent(of_all(bar.ns, total_ns));
            let error = match self.estimate.as_ref().map(|estimate| estimate.error_share(bar)) {
                Some(error) if error > 0.0 => format!(" ±{}", percent(error)),
                _ => String::new(),
            };
            let figures = format!("{}{error}, {share}, {}", self.amount(bar.ns), self.counted(bar.calls));
            match is_unsure(bar) {
                true => Painted {
                    class: class + " unsure",
                    figures: format!("~{figures}"),
                    kind: kind.to_owned(),
                },
                false => Painted { class, figures, kind: kind.to_owned() },
            }
        })
    }
}

/// The widest bars of those lines, and how many were left out.
pub(super) fn drawn_bars(lines: &[FlameLine]) -> (Vec<Bar<'_>>, usize) {
    let mut bars = bars(lines);
    let left_out = keep_widest(&mut bars, BARS_MAX);
    (bars, left_out)
}

/// The drawing of bars that are `total_ns` wide together.
pub(super) fn drawing(
    head: &Head,
    bars: &[Bar<'_>],
    left_out: usize,
    total_ns: u64,
    paint: impl Fn(&Bar<'_>) -> Painted,
) -> String {
    let (legend, top) = legend(&head.legend);
    let height = (1 + bars.iter().map(|bar| bar.depth).max().unwrap_or(0)) * ROW;
    let bottom = top + height;
    let total_height = bottom + 28;
    let inner = WIDTH - 2.0 * PAD;
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{total_height}\" \
         viewBox=\"0 0 {WIDTH} {total_height}\">\n\
         <style>\n{STYLE}{}</style>\n\
         <rect id=\"page\" width=\"100%\" height=\"100%\" rx=\"6\"/>\n\
         <text id=\"title\" x=\"{PAD}\" y=\"26\">{}</text>\n\
         <text id=\"subtitle\" x=\"{PAD}\" y=\"46\"><title>{}</title><tspan>{}</tspan></text>\n\
         {legend}\
         <svg id=\"frames\" x=\"{PAD}\" y=\"{top}\" width=\"{inner}\" height=\"{height}\" data-cell=\"{CELL}\">\n",
        head.rules,
        escaped(&head.title),
        escaped(&head.subtitle),
        escaped(&fitted(&head.subtitle, inner)),
    );
    for bar in bars {
        draw(bar, &paint(bar), total_ns, height, &mut text);
    }
    let details = match left_out {
        0 => String::new(),
        1 => "1 narrow frame is not drawn.".to_owned(),
        _ => format!("{} narrow frames are not drawn.", count(left_out as u64)),
    };
    let _ = write!(
        text,
        "</svg>\n<text id=\"details\" x=\"{PAD}\" y=\"{}\">{details}</text>\n\
         <script><![CDATA[\n{SCRIPT}]]></script>\n</svg>\n",
        bottom + 18,
    );
    text
}

fn of_all(ns: u64, total_ns: u64) -> f64 {
    if total_ns == 0 { 0.0 } else { ns as f64 / total_ns as f64 }
}

fn draw(bar: &Bar<'_>, painted: &Painted, total_ns: u64, height: usize, to: &mut String) {
    let Bar { start_ns, ns, .. } = *bar;
    let Painted { class, figures, kind } = painted;
    let name = bar.frame.map_or("all", |frame| &*frame.text);
    let (x, width) = (100.0 * of_all(start_ns, total_ns), 100.0 * of_all(ns, total_ns));
    let top = height - (bar.depth + 1) * ROW;
    let _ = writeln!(
        to,
        "<g data-at=\"{start_ns}\" data-ns=\"{}\"><title>{}\n{}\n{kind}</title>\
         <rect class=\"{class}\" x=\"{x:.4}%\" y=\"{top}\" width=\"{width:.4}%\" height=\"{}\"/>\
         <text x=\"{x:.4}%\" y=\"{}\" dx=\"3\">{}</text></g>",
        ns.max(1),
        escaped(name),
        escaped(figures),
        ROW - 1,
        top + 13,
        escaped(&fitted(name, (WIDTH - 2.0 * PAD) * width / 100.0 - 6.0)),
    );
}

/// Swatches of what the drawing has, in rows; and where the frames begin below.
fn legend(swatches: &[(String, &'static str)]) -> (String, usize) {
    let (mut x, mut y) = (PAD, 58);
    let mut text = "<g id=\"legend\">\n".to_owned();
    for (class, label) in swatches {
        let width = 33.0 + CELL * label.len() as f64;
        if x + width > WIDTH - PAD {
            (x, y) = (PAD, y + ROW);
        }
        let _ = writeln!(
            text,
            "<g data-width=\"{width}\" transform=\"translate({x} {y})\">\
             <rect class=\"{class}\" width=\"12\" height=\"12\" rx=\"2\"/><text x=\"17\" y=\"10\">{label}</text></g>",
        );
        x += width;
    }
    (text + "</g>\n", y + 24)
}

/// The text, or as much of its beginning as fits, with a mark. Wide scripts begin at U+1100; a letter
/// before that takes one cell. As `fitted` in `drawing.js`.
fn fitted(text: &str, pixels: f64) -> String {
    let most = (pixels / CELL) as usize;
    let (mut used, mut kept) = (0, String::new());
    for c in text.chars() {
        used += if c < '\u{1100}' { 1 } else { 2 };
        if used > most {
            return if most < 3 { String::new() } else { kept + "…" };
        }
        if used < most {
            kept.push(c);
        }
    }
    text.to_owned()
}

/// As XML text or as the value of an attribute. What XML cannot hold becomes U+FFFD.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roxmltree::{Document, Node};

    use super::*;
    use crate::flame::tests::graph;
    use crate::label::units::duration;
    use crate::report::tests::tape::training;

    /// The frames' groups with the lines of their tooltips.
    fn tooltips<'a>(document: &'a Document<'_>) -> Vec<(Node<'a, 'a>, Vec<&'a str>)> {
        let groups = document.descendants().filter(|node| node.has_attribute("data-ns"));
        groups
            .map(|group| {
                let title = group.first_element_child().unwrap();
                assert_eq!(title.tag_name().name(), "title");
                (group, title.text().unwrap().split('\n').collect())
            })
            .collect()
    }

    #[test]
    fn tooltips_have_the_name_and_figures_of_the_bar() {
        let (totals, aggregates) = training(false);
        let flame = Flame::new(&totals, &aggregates);
        let svg = flame.svg();
        let document = Document::parse(&svg).unwrap();
        let tooltips = tooltips(&document);
        let (total, calls) = (flame.total_ns(), flame.lines.iter().map(|line| line.calls).sum::<u64>());
        assert_eq!(calls, totals.counts.timed);
        let all = format!("{}, 100%, {} GPU calls", duration(total), count(calls));
        assert_eq!(tooltips[0].1, ["all", &all, "root"]);
        for (bar, (group, lines)) in bars(&flame.lines).iter().zip(&tooltips).skip(1) {
            let frame = bar.frame.unwrap();
            let calls = if bar.calls == 1 { "GPU call" } else { "GPU calls" };
            let share = percent(bar.ns as f64 / total as f64);
            let figures = format!("{}, {share}, {} {calls}", duration(bar.ns), count(bar.calls));
            assert_eq!(*lines, [&*frame.text, &figures, colours::label(frame.kind)]);
            assert_eq!(group.attribute("data-ns").unwrap(), bar.ns.to_string());
        }
        assert_eq!(tooltips.len(), bars(&flame.lines).len());
    }

    #[test]
    fn legend_names_the_kinds_that_are_drawn() {
        let (totals, aggregates) = training(false);
        let svg = Flame::new(&totals, &aggregates).svg();
        let document = Document::parse(&svg).unwrap();
        let legend = document.descendants().find(|node| node.attribute("id") == Some("legend")).unwrap();
        let labels: BTreeSet<&str> =
            legend.descendants().filter_map(|node| node.text()?.trim().get(..)).collect();
        let drawn: BTreeSet<&str> = tooltips(&document).iter().skip(1).map(|(_, lines)| lines[2]).collect();
        assert!(drawn.contains("kernel") && !drawn.contains("rank"));
        assert_eq!(labels.into_iter().filter(|label| !label.is_empty()).collect::<BTreeSet<_>>(), drawn);
    }

    #[test]
    fn frames_that_are_not_drawn_are_counted() {
        let leaf = |at: usize| (vec!["main".to_owned(), format!("kernel {at}")], 1_000);
        let drawn = |lines: usize| graph((0..lines).map(leaf).collect()).svg();
        assert!(!drawn(BARS_MAX - 2).contains("not drawn"));
        assert!(drawn(BARS_MAX - 1).contains(">1 narrow frame is not drawn.<"));
        let svg = drawn(BARS_MAX + 1_998);
        assert!(svg.contains(">2,000 narrow frames are not drawn.<"));
        assert_eq!(tooltips(&Document::parse(&svg).unwrap()).len(), BARS_MAX);
    }

    #[test]
    fn text_is_cut_to_its_width() {
        assert_eq!(fitted("kernel", 6.0 * CELL), "kernel");
        assert_eq!(fitted("kernel", 5.9 * CELL), "kern…");
        assert_eq!(fitted("kernel", 2.9 * CELL), "");
        assert_eq!(fitted("k", CELL), "k");
        assert_eq!(fitted("核核核", 5.0 * CELL), "核核…");
        assert_eq!(fitted("", -1.0), "");
    }

    const HOSTILE: &str = "(<script>alert\\(1\\)</script>|]]>|<!--|&#60;|\" onload=\"|' |</title>|<a href=\"javascript:x\">|\\PC|[\0-\u{20}\u{7f}-\u{9f}\u{fffe}\u{ffff}\u{202e}]|[a-c<>&;]){0,8}";

    proptest! {
        #[test]
        fn hostile_names_are_escaped(
            program in HOSTILE,
            stacks in prop::collection::btree_map(prop::collection::vec(HOSTILE, 1..4), 1u64..1 << 40, 1..6),
        ) {
            let mut flame = graph(stacks.into_iter().collect());
            flame.lines.sort_by(|a, b| a.frames.cmp(&b.frames));
            flame.program = program;
            let svg = flame.svg();
            let document = Document::parse(&svg).map_err(|error| TestCaseError::fail(format!("{error}\n{svg}")))?;
            let scripts: Vec<_> = document.descendants().filter(|node| node.has_tag_name("script")).collect();
            prop_assert_eq!(scripts.len(), 1);
            prop_assert_eq!(scripts[0].text().unwrap().trim_start(), SCRIPT);
            for node in document.descendants().filter(Node::is_element) {
                let tag = node.tag_name().name();
                prop_assert!(["svg", "style", "rect", "text", "tspan", "g", "title", "script"].contains(&tag), "{tag}");
                for attribute in node.attributes() {
                    prop_assert!(!attribute.name().starts_with("on") && !attribute.name().contains("href"));
                    prop_assert!(!attribute.value().contains(['<', '&', '"', '\'']), "{attribute:?}");
                }
            }
            let visible = |text: &str| text.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}");
            let names: Vec<_> = tooltips(&document).iter().map(|(_, lines)| lines[0].to_owned()).collect();
            let drawn: Vec<_> = bars(&flame.lines).iter()
                .map(|bar| bar.frame.map_or("all".to_owned(), |frame| visible(&frame.text))).collect();
            prop_assert_eq!(names, drawn);
        }
    }
}
