//! Stacks of both sides, joined by the names of their frames.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::report::Report;
use crate::report::diff::rows::{SideSums, by_change, compared};
use crate::report::diff::{ComparedRow, DiffReport, PerStep, RunSums};

/// Stacks in the comparison: those that changed the most.
const STACKS_KEPT: usize = 200;

/// A stack of one run: the names of its frames from the root on, and its sums.
pub type StackOfRun = (Vec<Arc<str>>, RunSums);

/// A side's reports and, by run, its stacks.
#[derive(Clone, Copy, Debug)]
pub struct SideStacks<'a> {
    pub runs: &'a [Report],
    pub stacks: &'a [Vec<StackOfRun>],
}

impl SideStacks<'_> {
    fn sums(&self) -> SideSums<&[Arc<str>]> {
        let mut sums = SideSums::empty(self.runs);
        for (run, stacks) in self.stacks.iter().enumerate().take(self.runs.len()) {
            stacks.iter().for_each(|(frames, of_stack)| sums.add(run, frames.as_slice(), *of_stack));
        }
        sums
    }
}

impl DiffReport {
    /// Adds the stacks that changed the most.
    pub fn add_stacks(&mut self, before: SideStacks<'_>, after: SideStacks<'_>) {
        let (before, after) = (before.sums(), after.sums());
        let keys: BTreeSet<&[Arc<str>]> = before.keys().chain(after.keys()).copied().collect();
        // A name is made of those alone that are kept.
        let row = |key: &&[Arc<str>]| {
            let row = compared(String::new(), [&before, &after], [key, key]);
            // Host times of stacks are known where there are no device times.
            let has_times = row.time.before.is_some() || row.time.after.is_some();
            let host_time = row.host_time.filter(|_| !has_times);
            let per_step =
                row.per_step.map(|step| PerStep { host_time: step.host_time.filter(|_| !has_times), ..step });
            ComparedRow { host_time, per_step, ..row }
        };
        let mut changed: Vec<(&[Arc<str>], ComparedRow)> =
            keys.iter().map(|key| (*key, row(key))).filter(|(_, row)| !row.is_same()).collect();
        self.stacks_the_same = (keys.len() - changed.len()) as u64;
        changed.sort_by(|(_, a), (_, b)| by_change(a, b, true));
        self.stacks_left_out = changed.len().saturating_sub(STACKS_KEPT) as u64;
        changed.truncate(STACKS_KEPT);
        let named = |(key, row): (&[Arc<str>], ComparedRow)| ComparedRow { name: key.join(";"), ..row };
        self.stacks = changed.into_iter().map(named).collect();
    }
}

/// The innermost frame first: pages cut names off at their ends.
pub(super) fn innermost_first(name: &str) -> String {
    name.rsplit(';').collect::<Vec<_>>().join(" < ")
}
