//! The part of a flamegraph's weights that is estimated, and the error of each bar.

use rustc_hash::FxHashMap;

use crate::aggregate::{Estimate, EstimatedRow, Estimation};
use crate::flame::bars::{Bar, bars};
use crate::flame::{FlameLine, Frame};

/// Bars whose error is larger, as a share of their weight, are marked.
const SURE: f64 = 0.1;

#[derive(Clone, PartialEq, Debug, Default)]
pub struct FlameEstimate {
    pub total: Estimate,
    /// Half of the 95 % interval of each bar in ns, by its depth and start.
    errors: FxHashMap<(usize, u64), f64>,
}

impl FlameEstimate {
    /// `line_of` has the index in `lines` of each row of the estimation.
    pub fn new(
        estimation: &Estimation,
        lines: &[FlameLine],
        line_of: impl Fn(&EstimatedRow) -> Option<usize>,
    ) -> FlameEstimate {
        let all = bars(lines);
        let below = bars_of_lines(lines);
        let by_bar = estimation.sums(|row, groups| {
            groups.extend(line_of(row).and_then(|line| below.get(line)).into_iter().flatten().copied());
        });
        let error = |(bar, estimate): (usize, Estimate)| {
            let bar = all.get(bar)?;
            Some(((bar.depth, bar.start_ns), estimate.error_ns))
        };
        // Bars without a width share their start with another one.
        let wide = by_bar.into_iter().filter(|(bar, _)| all.get(*bar).is_some_and(|bar| bar.ns > 0));
        FlameEstimate { total: estimation.total(), errors: wide.filter_map(error).collect() }
    }

    /// The error of a bar as a share of its weight; 0 if it is measured.
    pub(super) fn error_share(&self, bar: &Bar<'_>) -> f64 {
        let error_ns = self.errors.get(&(bar.depth, bar.start_ns)).copied().unwrap_or(0.0);
        if bar.ns == 0 { 0.0 } else { error_ns / bar.ns as f64 }
    }

    pub(super) fn is_unsure(&self, bar: &Bar<'_>) -> bool {
        self.error_share(bar) > SURE
    }
}

/// By line, the indices of its bars in what [`bars`] returns.
fn bars_of_lines(lines: &[FlameLine]) -> Vec<Vec<usize>> {
    let mut next = 1;
    let mut open = vec![0];
    let mut before: &[Frame] = &[];
    let mut of_lines = Vec::with_capacity(lines.len());
    for line in lines {
        let shared = before.iter().zip(&line.frames).take_while(|(a, b)| a == b).count();
        open.truncate(shared + 1);
        while open.len() <= line.frames.len() {
            open.push(next);
            next += 1;
        }
        of_lines.push(open.clone());
        before = &line.frames;
    }
    of_lines
}
