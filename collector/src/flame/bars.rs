//! The layout of the drawing: lines of frames merged to bars, each above the bar that caused it.

use std::cmp::Reverse;

use crate::flame::{FlameLine, Frame};

/// A frame in one place of the flamegraph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bar<'a> {
    /// `None` for the root.
    pub frame: Option<&'a Frame>,
    /// Bars below it.
    pub depth: usize,
    /// The sum of the lines left of it.
    pub start_ns: u64,
    pub ns: u64,
    pub calls: u64,
}

/// The root, then each bar directly before those above it, from left to right. `lines` are sorted by frames,
/// so that lines which share a bar are neighbours.
pub(super) fn bars(lines: &[FlameLine]) -> Vec<Bar<'_>> {
    let mut bars = vec![Bar { frame: None, depth: 0, start_ns: 0, ns: 0, calls: 0 }];
    // The bars of the line before, as indices into `bars`.
    let mut open = vec![0];
    let mut before: &[Frame] = &[];
    let mut start_ns = 0u64;
    for line in lines {
        let shared = before.iter().zip(&line.frames).take_while(|(a, b)| a == b).count();
        open.truncate(shared + 1);
        for frame in line.frames.iter().skip(shared) {
            bars.push(Bar { frame: Some(frame), depth: open.len(), start_ns, ns: 0, calls: 0 });
            open.push(bars.len() - 1);
        }
        let end_ns = start_ns.saturating_add(line.ns);
        for &at in &open {
            if let Some(bar) = bars.get_mut(at) {
                bar.ns = end_ns - bar.start_ns;
                bar.calls = bar.calls.saturating_add(line.calls);
            }
        }
        (before, start_ns) = (&line.frames, end_ns);
    }
    bars
}

/// Removes all but the `most` widest bars, and those above the root that have no width. Returns how many it
/// removed. A bar is at least as wide as those above it and comes before them, so none loses its base.
pub(super) fn keep_widest(bars: &mut Vec<Bar<'_>>, most: usize) -> usize {
    let before = bars.len();
    let mut ranks: Vec<(Reverse<u64>, usize)> =
        bars.iter().enumerate().map(|(at, bar)| (Reverse(bar.ns), at)).collect();
    let first_removed = (most < before).then(|| *ranks.select_nth_unstable(most).1);
    let mut at = 0..;
    bars.retain(|bar| {
        let rank = (Reverse(bar.ns), at.next().unwrap_or(usize::MAX));
        (bar.ns > 0 || bar.depth == 0) && first_removed.is_none_or(|removed| rank < removed)
    });
    before - bars.len()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::flame::tests::graph;

    proptest! {
        /// The folded weights of a bar's lines add up to the bar's own edges, rounded to microseconds.
        #[test]
        fn bars_are_sums_of_the_folded_lines(
            lines in prop::collection::btree_map(prop::collection::vec("[abc]", 1..5), 0u64..9_000, 1..30),
        ) {
            let flame = graph(lines.into_iter().collect());
            let drawn = bars(&flame.lines);
            prop_assert_eq!((drawn[0].ns, drawn[0].calls), (flame.total_ns(), flame.lines.len() as u64));
            let mut stack: Vec<&Frame> = Vec::new();
            let mut stacks = HashSet::new();
            for bar in &drawn {
                stack.truncate(bar.depth.saturating_sub(1));
                stack.extend(bar.frame);
                prop_assert!(stacks.insert(stack.clone()), "two bars of one stack");
                let is_above = |line: &FlameLine| line.frames.iter().take(stack.len()).eq(stack.iter().copied());
                let folded: u64 =
                    flame.weighted().filter(|(line, _)| is_above(line)).map(|(_, us)| us).sum();
                let us = |ns: u64| (ns + 500) / 1_000;
                prop_assert_eq!(folded, us(bar.start_ns + bar.ns) - us(bar.start_ns));
                prop_assert_eq!(bar.calls, flame.lines.iter().filter(|line| is_above(line)).count() as u64);
            }
            let all: HashSet<&[Frame]> =
                flame.lines.iter().flat_map(|line| (0..=line.frames.len()).map(|to| &line.frames[..to])).collect();
            prop_assert_eq!(drawn.len(), all.len());
        }

        #[test]
        fn narrow_bars_are_removed_from_the_top(
            lines in prop::collection::btree_map(prop::collection::vec("[abc]", 1..5), 0u64..9, 1..30),
            most in 1usize..20,
        ) {
            let flame = graph(lines.into_iter().collect());
            let mut drawn = bars(&flame.lines);
            let all = drawn.len();
            let removed = keep_widest(&mut drawn, most);
            prop_assert_eq!(drawn.len() + removed, all);
            let has_width = 1 + bars(&flame.lines).iter().filter(|bar| bar.ns > 0 && bar.depth > 0).count();
            prop_assert_eq!(drawn.len(), most.min(has_width));
            let mut depth = 0;
            for bar in drawn.iter().skip(1) {
                prop_assert!(bar.depth <= depth + 1, "a bar stands on nothing");
                depth = bar.depth;
            }
        }
    }
}
