//! Time by stack as text: top down, what caused it; bottom up, what ran and who called for it.

use std::cmp::Reverse;

use crate::flame::bars::{Bar, bars};
use crate::flame::{Flame, FlameLine};
use crate::label::units::{count, percent};
use crate::names::{fit, line_safe};

/// Between the figures of a row.
const GAP: usize = 2;
/// The width of the figures, and the least width of a frame's text beside them.
const FIGURES: usize = 32;
const FRAME_MIN: usize = 20;

/// What is shown of the stacks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StackPage {
    /// In characters.
    pub width: usize,
    /// Frames from the begin of a stack on; all without it.
    pub depth: Option<usize>,
    /// The least share of all time at which a frame is shown.
    pub share_min: f64,
}

/// What a tree did not show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct CutBranches {
    small: u64,
    deep: u64,
}

/// A tree in the making.
struct StackTree<'a> {
    flame: &'a Flame,
    page: StackPage,
    bars: Vec<Bar<'a>>,
    total: u64,
    left_out: CutBranches,
    text: String,
}

impl Flame {
    /// Both trees, each frame with its time, its share of all time, and calls.
    pub fn stack_page(&self, page: &StackPage) -> String {
        let width = page.width.max(FIGURES + FRAME_MIN);
        let page = StackPage { width, ..*page };
        let title = format!("{}\n{}\n", fit(&self.title(), width), fit(&self.subtitle(), width));
        if self.total_ns() == 0 {
            return title;
        }
        let mut inverted: Vec<FlameLine> = self.lines.clone();
        inverted.iter_mut().for_each(|line| line.frames.reverse());
        inverted.sort_by(|a, b| a.frames.cmp(&b.frames));
        let down = StackTree::new(self, page, &self.lines).text("Top down", "stack");
        let up =
            StackTree::new(self, page, &inverted).text("Bottom up", "what ran, and below it its callers");
        format!("{title}\n{down}\n{up}")
    }
}

impl<'a> StackTree<'a> {
    fn new(flame: &'a Flame, page: StackPage, lines: &'a [FlameLine]) -> StackTree<'a> {
        let bars = bars(lines);
        let total = bars.first().map_or(0, |root| root.ns);
        StackTree { flame, page, bars, total, left_out: CutBranches::default(), text: String::new() }
    }

    fn text(mut self, heading: &str, frames: &str) -> String {
        self.text = format!("{heading}\n");
        self.row([&"total", &"share", &"calls"], 0, frames);
        self.branch(0, 0);
        let CutBranches { small, deep } = self.left_out;
        if small > 0 {
            let least = 100.0 * self.page.share_min;
            self.text += &format!("{} of less than {least}% not shown (--min-share)\n", branches(small));
        }
        if deep > 0 {
            let depth = self.page.depth.unwrap_or(0);
            self.text += &format!("{} deeper than {depth} not shown (--depth)\n", branches(deep));
        }
        self.text
    }

    fn row(&mut self, [total, share, calls]: [&dyn std::fmt::Display; 3], indent: usize, frame: &str) {
        let figures = format!("{total:>10}{:GAP$}{share:>6}{:GAP$}{calls:>10}{:GAP$}", "", "", "");
        // A deep stack keeps room for its text.
        let indent = indent.min(self.page.width.saturating_sub(FIGURES + FRAME_MIN));
        let frame = fit(&line_safe(frame), self.page.width.saturating_sub(FIGURES + indent));
        self.text += &format!("{figures}{:indent$}{frame}\n", "");
    }

    /// Writes what is above the bar at `parent`, the heaviest first. A frame that alone continues another
    /// stands below it, without figures where they are the same.
    fn branch(&mut self, parent: usize, indent: usize) {
        let Some(below) = self.bars.get(parent).copied() else { return };
        let depth = below.depth;
        let above = self.bars.iter().enumerate().skip(parent + 1).take_while(|(_, bar)| bar.depth > depth);
        let mut children: Vec<(usize, Bar<'a>)> =
            above.filter(|(_, bar)| bar.depth == depth + 1).map(|(at, bar)| (at, *bar)).collect();
        children.sort_by_key(|(_, bar)| Reverse(bar.ns));
        if self.page.depth.is_some_and(|most| depth >= most) {
            self.left_out.deep += children.len() as u64;
            return;
        }
        let indent_above = if children.len() == 1 { indent } else { indent + GAP };
        for (at, bar) in children {
            let share = bar.ns as f64 / self.total as f64;
            if share < self.page.share_min {
                self.left_out.small += 1;
                continue;
            }
            let figures = [self.flame.amount(bar.ns), percent(share), count(bar.calls)];
            let is_same = parent > 0 && (bar.ns, bar.calls) == (below.ns, below.calls);
            let [total, share, calls] = if is_same { &Default::default() } else { &figures };
            self.row([total, share, calls], indent, bar.frame.map_or("", |frame| &*frame.text));
            self.branch(at, indent_above);
        }
    }
}

fn branches(number: u64) -> String {
    format!("{} {}", count(number), if number == 1 { "branch" } else { "branches" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flame::tests::graph;
    use crate::report::tests::golden;
    use crate::report::tests::tape::stacked;

    const ALL: StackPage = StackPage { width: 80, depth: None, share_min: 0.0 };

    /// The text and the nanoseconds of each row that has no child.
    fn shown(page: &str, heading: &str) -> Vec<(String, String)> {
        let tree = page.split("\n\n").find(|tree| tree.starts_with(heading)).unwrap();
        let rows = tree.lines().skip(2);
        let cells = |row: &str| row.chars().take(10).collect::<String>().trim().to_owned();
        rows.map(|row| (row.chars().skip(32).collect::<String>().trim().to_owned(), cells(row))).collect()
    }

    fn made() -> Flame {
        let line = |frames: &[&str], ns| (frames.iter().map(|frame| (*frame).to_owned()).collect(), ns);
        graph(vec![
            line(&["main", "a", "gemm"], 1_000),
            line(&["main", "a", "tiny"], 3),
            line(&["main", "b", "gemm"], 3_000),
        ])
    }

    #[test]
    fn both_trees_have_the_heaviest_branch_first() {
        let page = made().stack_page(&ALL);
        let row = |name: &str, total: &str| (name.to_owned(), total.to_owned());
        let down = [
            row("main", "4.00 µs"),
            row("b", "3.00 µs"),
            row("gemm", ""),
            row("a", "1.00 µs"),
            row("gemm", "1.00 µs"),
            row("tiny", "3 ns"),
        ];
        let up = [
            row("gemm", "4.00 µs"),
            row("b", "3.00 µs"),
            row("main", ""),
            row("a", "1.00 µs"),
            row("main", ""),
            row("tiny", "3 ns"),
            row("a", ""),
            row("main", ""),
        ];
        assert_eq!((shown(&page, "Top down"), shown(&page, "Bottom up")), (down.to_vec(), up.to_vec()));
        assert!(!page.contains("not shown"), "{page}");
    }

    #[test]
    fn what_is_not_shown_is_counted() {
        let page = made().stack_page(&StackPage { share_min: 0.005, ..ALL });
        assert_eq!(page.matches("1 branch of less than 0.5% not shown (--min-share)").count(), 2, "{page}");
        let page = made().stack_page(&StackPage { depth: Some(1), ..ALL });
        let only = |text: &str, total: &str| (text.to_owned(), total.to_owned());
        assert_eq!(shown(&page, "Top down")[0], only("main", "4.00 µs"));
        assert!(page.contains("2 branches deeper than 1 not shown (--depth)"), "{page}");
    }

    #[test]
    fn page_keeps_to_its_width() {
        let (totals, aggregates) = stacked(false);
        let flame = Flame::new(&totals, &aggregates);
        golden("flame/tests/stack_page.txt", &flame.stack_page(&StackPage { share_min: 0.005, ..ALL }));
        for width in 40..=160 {
            let page = flame.stack_page(&StackPage { width, ..ALL });
            let longest = page.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(longest.chars().count() <= width.max(FIGURES + FRAME_MIN), "{width}: {longest}");
        }
        assert!(graph(Vec::new()).stack_page(&ALL).starts_with("No CUDA work was recorded"));
    }
}
