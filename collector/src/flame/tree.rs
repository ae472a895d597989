//! The flamegraph as an indented text, the heaviest branches first.

use std::cmp::Reverse;

use crate::flame::Flame;
use crate::flame::bars::{Bar, bars};
use crate::label::units::percent;
use crate::names::line_safe;

/// Branches with a smaller share of the whole are not shown.
const SHARE_MIN: f64 = 0.005;

impl Flame {
    /// The branches of at least half a percent. A frame that alone continues another is on the same level.
    pub fn tree(&self) -> String {
        let all = bars(&self.lines);
        let total = all.first().map_or(0, |root| root.ns);
        let mut text = format!("{}\n{}\n", self.title(), self.subtitle());
        if total > 0 {
            self.branch(&all, 0, 0, total, &mut text);
        }
        text
    }

    /// Writes the children of the bar at `parent`. The bars above a bar follow it directly.
    fn branch(&self, all: &[Bar<'_>], parent: usize, indent: usize, total: u64, text: &mut String) {
        let Some(depth) = all.get(parent).map(|bar| bar.depth) else { return };
        let above = all.iter().enumerate().skip(parent + 1).take_while(|(_, bar)| bar.depth > depth);
        let mut children: Vec<(usize, &Bar<'_>)> = above.filter(|(_, bar)| bar.depth == depth + 1).collect();
        children.sort_by_key(|(_, bar)| Reverse(bar.ns));
        let only = children.len() == 1;
        for (at, bar) in children {
            let share = bar.ns as f64 / total as f64;
            if share < SHARE_MIN {
                continue;
            }
            let name = bar.frame.map_or("", |frame| &*frame.text);
            let figures = format!("{:>10} {:>6}", self.amount(bar.ns), percent(share));
            *text += &format!("{figures}  {:indent$}{}\n", "", line_safe(name));
            self.branch(all, at, if only { indent } else { indent + 2 }, total, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::flame::tests::graph;

    #[test]
    fn tree_has_the_heaviest_branch_first_and_leaves_out_the_lightest() {
        let line = |frames: &[&str], ns| (frames.iter().map(|frame| (*frame).to_owned()).collect(), ns);
        let flame = graph(vec![
            line(&["main", "a", "small"], 1_000),
            line(&["main", "a", "tiny"], 3),
            line(&["main", "b"], 3_000),
        ]);
        let text = flame.tree();
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "   4.00 µs   100%  main",
                "   3.00 µs  74.9%  b",
                "   1.00 µs  25.1%  a",
                "   1.00 µs  25.0%    small"
            ]
        );
    }
}
