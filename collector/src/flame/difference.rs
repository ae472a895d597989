//! The differential flamegraph: the stacks of two sides in one drawing, coloured by what changed.
//!
//! A bar is as wide as the wider side, summed from its leaves: what one side alone has is drawn too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use rustc_hash::FxHashMap;

use crate::flame::bars::bars;
use crate::flame::svg::{Head, Painted, drawing, drawn_bars};
use crate::flame::{Flame, FlameLine, FlameWeight, Frame, FrameKind, colours};
use crate::label::units::duration;
use crate::names::line_safe;

/// Why two sides cannot be drawn in one graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotComparable {
    #[error("some runs have device times and others have not, so their flamegraphs measure different things")]
    Times,
    #[error("there are no runs on one side")]
    Nothing,
}

/// Stacks with their weights on both sides, each a mean over the side's runs.
#[derive(Clone, PartialEq, Debug)]
pub struct FlameDifference {
    program: String,
    simulated: bool,
    host_time: bool,
    /// Sorted by frames, each once.
    lines: Vec<DifferenceLine>,
}

#[derive(Clone, PartialEq, Debug)]
struct DifferenceLine {
    frames: Vec<Frame>,
    before_ns: u64,
    after_ns: u64,
}

/// The colours of bars: class, label, and the fill on light and on dark pages.
const LOOKS: [(&str, &str, &str, &str); 7] = [
    ("same", "same (within 1%)", "#e4e4e2", "#3c3f44"),
    ("more1", "more after", "#f6cfc4", "#5c342b"),
    ("more2", "over 25% more", "#f2ab98", "#79382a"),
    ("gained", "only after", "#ea8a72", "#8f3a28"),
    ("less1", "less after", "#cbdcf3", "#2b3f5c"),
    ("less2", "over 25% less", "#a4c4ec", "#27497a"),
    ("lost", "only before", "#86b0e6", "#234f8f"),
];

/// How stacks of both sides begin, so that processes with different ids are one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedRoots {
    /// The name of the process, if each side is a single one.
    process: Option<String>,
}

impl SharedRoots {
    /// Of the runs on both sides.
    pub fn new(before: &[Flame], after: &[Flame]) -> SharedRoots {
        let is_one = |flames: &[Flame]| processes(flames).len() <= 1;
        let name = processes(after).into_iter().chain(processes(before)).next().unwrap_or_default();
        SharedRoots { process: (is_one(before) && is_one(after)).then_some(name) }
    }

    /// A line's frames, without the id of its process.
    pub fn frames(&self, line: &FlameLine) -> Vec<Frame> {
        let mut frames = line.frames.clone();
        if let Some(root) = frames.first_mut().filter(|root| root.kind == FrameKind::Process) {
            let name = self.process.as_deref().unwrap_or_else(|| without_pid(&root.text));
            *root = Frame::new(FrameKind::Process, name);
        }
        frames
    }
}

impl FlameDifference {
    /// Of the runs on both sides.
    ///
    /// # Errors
    /// If their weights measure different things.
    pub fn new(before: &[Flame], after: &[Flame]) -> Result<FlameDifference, NotComparable> {
        let has_work = |flame: &&Flame| !flame.lines.is_empty();
        let host_times: BTreeSet<bool> = before
            .iter()
            .chain(after)
            .filter(has_work)
            .map(|flame| flame.weight == FlameWeight::Host)
            .collect();
        let Some(newest) = after.first().filter(|_| !before.is_empty()) else {
            return Err(NotComparable::Nothing);
        };
        if host_times.len() > 1 {
            return Err(NotComparable::Times);
        }
        let mut sums: BTreeMap<Vec<Frame>, [u64; 2]> = BTreeMap::new();
        let roots = SharedRoots::new(before, after);
        for (side, flames) in [before, after].into_iter().enumerate() {
            for line in flames.iter().flat_map(|flame| &flame.lines) {
                if let Some(sum) = sums.entry(roots.frames(line)).or_default().get_mut(side) {
                    *sum = sum.saturating_add(line.ns);
                }
            }
        }
        let mean = |sum: u64, flames: &[Flame]| sum / (flames.len() as u64).max(1);
        let lines = sums.into_iter().map(|(frames, [old, new])| DifferenceLine {
            frames,
            before_ns: mean(old, before),
            after_ns: mean(new, after),
        });
        Ok(FlameDifference {
            program: newest.program.clone(),
            simulated: before.iter().chain(after).any(|flame| flame.simulated),
            host_time: host_times.contains(&true),
            lines: lines.collect(),
        })
    }

    /// Draws it.
    pub fn svg(&self) -> String {
        let lines = self.weighted(|line| line.before_ns.max(line.after_ns));
        let sides = [self.weighted(|line| line.before_ns), self.weighted(|line| line.after_ns)];
        // The bars of one shape are the same whatever the weights: their figures are joined in that order.
        let mut figures: FxHashMap<(usize, u64), [u64; 2]> = FxHashMap::default();
        for ((wide, old), new) in bars(&lines).iter().zip(bars(&sides[0])).zip(bars(&sides[1])) {
            if wide.ns > 0 {
                figures.insert((wide.depth, wide.start_ns), [old.ns, new.ns]);
            }
        }
        let (drawn, left_out) = drawn_bars(&lines);
        let total_ns = lines.iter().fold(0, |sum: u64, line| sum.saturating_add(line.ns));
        let head = Head {
            title: self.title(),
            subtitle: self.subtitle(),
            rules: rules(),
            legend: LOOKS.iter().map(|(class, label, _, _)| ((*class).to_owned(), *label)).collect(),
        };
        drawing(&head, &drawn, left_out, total_ns, |bar| {
            let [old, new] = figures.get(&(bar.depth, bar.start_ns)).copied().unwrap_or_default();
            let (class, label) = look(old, new);
            let kind = bar.frame.map_or("root", |frame| colours::label(frame.kind));
            let text = format!("{} before, {} after, {}", duration(old), duration(new), changed(old, new));
            Painted { class: class.to_owned(), figures: text, kind: format!("{kind}, {label}") }
        })
    }

    fn sums(&self) -> [u64; 2] {
        self.lines.iter().fold([0, 0], |[old, new]: [u64; 2], line| {
            [old.saturating_add(line.before_ns), new.saturating_add(line.after_ns)]
        })
    }

    fn title(&self) -> String {
        let [old, new] = self.sums();
        if old == 0 && new == 0 {
            return "No CUDA work was recorded".to_owned();
        }
        let what = if self.host_time { "host time in CUDA calls (no device times)" } else { "GPU time" };
        format!("{} before, {} after: {} of {what}", duration(old), duration(new), changed(old, new))
    }

    fn subtitle(&self) -> String {
        let simulated = if self.simulated { " · simulated device" } else { "" };
        let program = line_safe(&self.program);
        format!("a bar is as wide as the side with more of it · red: more after{simulated} · {program}")
    }

    fn weighted(&self, weight: impl Fn(&DifferenceLine) -> u64) -> Vec<FlameLine> {
        let line =
            |line: &DifferenceLine| FlameLine { frames: line.frames.clone(), ns: weight(line), calls: 0 };
        self.lines.iter().map(line).collect()
    }
}

/// The texts of the processes, without their ids.
fn processes(flames: &[Flame]) -> BTreeSet<String> {
    let lines = flames.iter().flat_map(|flame| &flame.lines);
    let roots = lines.filter_map(|line| line.frames.first().filter(|frame| frame.kind == FrameKind::Process));
    roots.map(|frame| without_pid(&frame.text).to_owned()).collect()
}

/// `python train.py` for `python train.py [4711]`: an id is another one in every run.
fn without_pid(text: &str) -> &str {
    let pid = text.strip_suffix(']').and_then(|rest| rest.rsplit_once(" ["));
    match pid {
        Some((name, id)) if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => text,
    }
}

/// `+1.20 ms (+9.6%)`.
fn changed(old: u64, new: u64) -> String {
    let sign = if new < old { "-" } else { "+" };
    let share = match (old, new) {
        (0, 0) => return "the same".to_owned(),
        (0, _) => "new".to_owned(),
        _ => format!("{:+.1}%", 100.0 * (new as f64 / old as f64 - 1.0)),
    };
    format!("{sign}{} ({share})", duration(old.abs_diff(new)))
}

/// The class and the label of a bar.
fn look(old: u64, new: u64) -> (&'static str, &'static str) {
    let change = new as f64 / old.max(1) as f64 - 1.0;
    let class = match change {
        _ if old == 0 && new == 0 => "same",
        _ if old == 0 => "gained",
        _ if new == 0 => "lost",
        _ if change.abs() <= 0.01 => "same",
        0.25.. => "more2",
        0.0.. => "more1",
        _ if change < -0.25 => "less2",
        _ => "less1",
    };
    let found = LOOKS.iter().find(|(name, _, _, _)| *name == class);
    found.map_or((class, ""), |(_, label, _, _)| (class, *label))
}

fn rules() -> String {
    let (mut light, mut dark) = (String::new(), String::new());
    for (class, _, on_light, on_dark) in LOOKS {
        let _ = write!(light, ".{class}{{fill:{on_light}}}");
        let _ = write!(dark, ".{class}{{fill:{on_dark}}}");
    }
    format!("{light}\n@media (prefers-color-scheme: dark){{{dark}}}\n")
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;

    use super::*;
    use crate::flame::tests::graph;

    fn made(lines: &[(&[&str], u64)]) -> Flame {
        let line =
            |(frames, ns): &(&[&str], u64)| (frames.iter().map(|text| (*text).to_owned()).collect(), *ns);
        let mut flame = graph(lines.iter().map(line).collect());
        for line in &mut flame.lines {
            line.frames[0].kind = FrameKind::Process;
        }
        flame.lines.sort_by(|a, b| a.frames.cmp(&b.frames));
        flame
    }

    /// Each bar's tooltip and class.
    fn drawn(before: &[Flame], after: &[Flame]) -> Vec<(String, String)> {
        let svg = FlameDifference::new(before, after).unwrap().svg();
        let document = Document::parse(&svg).unwrap();
        let groups = document.descendants().filter(|node| node.has_attribute("data-ns"));
        let bars = groups.map(|group| {
            let title = group.first_element_child().unwrap();
            let rect = title.next_sibling_element().unwrap();
            (title.text().unwrap().replace('\n', " | "), rect.attribute("class").unwrap().to_owned())
        });
        bars.collect()
    }

    #[test]
    fn bars_have_both_figures_and_the_colour_of_their_change() {
        let before = made(&[(&["p [12]", "a"], 1_000), (&["p [12]", "b"], 2_000), (&["p [12]", "d"], 500)]);
        let after = made(&[(&["p [99]", "a"], 1_500), (&["p [99]", "c"], 4_000), (&["p [99]", "d"], 500)]);
        let expected = [
            ("all | 3.50 µs before, 6.00 µs after, +2.50 µs (+71.4%) | root, over 25% more", "more2"),
            ("p | 3.50 µs before, 6.00 µs after, +2.50 µs (+71.4%) | process, over 25% more", "more2"),
            ("a | 1.00 µs before, 1.50 µs after, +500 ns (+50.0%) | kernel, over 25% more", "more2"),
            ("b | 2.00 µs before, 0 ns after, -2.00 µs (-100.0%) | kernel, only before", "lost"),
            ("c | 0 ns before, 4.00 µs after, +4.00 µs (new) | kernel, only after", "gained"),
            ("d | 500 ns before, 500 ns after, +0 ns (+0.0%) | kernel, same (within 1%)", "same"),
        ];
        let drawn = drawn(&[before], &[after]);
        let drawn: Vec<(&str, &str)> =
            drawn.iter().map(|(title, class)| (title.as_str(), class.as_str())).collect();
        assert_eq!(drawn, expected);
    }

    /// The side's sums are means over its runs, and a program that was renamed is one program.
    #[test]
    fn sides_are_means_over_their_runs() {
        let before = [made(&[(&["old.py", "a"], 1_000)]), made(&[(&["old.py", "a"], 3_000)])];
        let after = made(&[(&["new.py", "a"], 1_000)]);
        let drawn = drawn(&before, &[after]);
        assert_eq!(drawn.len(), 3, "{drawn:?}");
        assert_eq!(
            drawn[1].0,
            "new.py | 2.00 µs before, 1.00 µs after, -1.00 µs (-50.0%) | process, over 25% less"
        );
        assert_eq!(drawn[2].1, "less2");
    }

    #[test]
    fn sides_of_different_times_are_not_drawn() {
        let device = made(&[(&["p", "a"], 1_000)]);
        let host = Flame { weight: FlameWeight::Host, ..device.clone() };
        let empty = Flame { lines: Vec::new(), ..host.clone() };
        let [host, device, empty] = [[host], [device], [empty]];
        let of = |before: &[Flame], after: &[Flame]| FlameDifference::new(before, after).err();
        assert_eq!(of(&host, &device), Some(NotComparable::Times));
        assert_eq!(of(&[], &device), Some(NotComparable::Nothing));
        assert_eq!(of(&empty, &device), None);
        let nothing = FlameDifference::new(&empty, &empty).unwrap().svg();
        assert!(nothing.contains("No CUDA work was recorded"), "{nothing}");
    }
}
