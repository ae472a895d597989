//! Kernels that took far longer than they usually do: how often each did, how much time that was, and the worst.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::aggregate::KernelKey;
use crate::aggregate::places::Places;
use crate::model::namesakes::Renumbering;
use crate::model::operation::{Anomaly, HostCall, Kernel, Operation, Timing, Verdict, What};

/// Kernels that are told apart.
const KERNELS_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub struct OddRuns {
    pub runs: u64,
    /// What they took beyond their medians.
    pub over_ns: u64,
    pub worst: OddRun,
}

impl OddRuns {
    /// Takes in those of the same kernel in another process.
    fn take_in(&mut self, other: OddRuns) {
        self.runs += other.runs;
        self.over_ns = self.over_ns.saturating_add(other.over_ns);
        if other.worst.over_ns() > self.worst.over_ns() {
            self.worst = other.worst;
        }
    }
}

/// The run that was farthest from its median.
#[derive(Clone, Debug)]
pub struct OddRun {
    pub kernel: Kernel,
    pub anomaly: Anomaly,
    pub timing: Timing,
    pub call: Option<HostCall>,
    /// The stack that answers for it: of a graph's node that of whoever captured it. 0 for none.
    pub stack: u32,
    /// When it began, since tracing of its process began: known here once that is told together with others.
    pub at_ns: Option<u64>,
}

impl OddRun {
    fn over_ns(&self) -> u64 {
        self.anomaly.over_ns(self.timing.duration_ns)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Anomalies {
    kernels: FxHashMap<KernelKey, OddRuns>,
    pub runs: u64,
    /// Runs of kernels beyond those that are told apart.
    pub beyond: u64,
    /// Runs of kernels that have no history, since there are too many.
    pub unjudged: u64,
    places: Places,
}

impl Anomalies {
    #[inline]
    pub fn add(&mut self, operation: &Operation) {
        match operation.verdict {
            Verdict::None | Verdict::Usual => {}
            Verdict::Unjudged => self.unjudged += 1,
            Verdict::Outlier(anomaly) => self.odd(operation, anomaly),
        }
    }

    #[cold]
    #[inline(never)]
    fn odd(&mut self, operation: &Operation, anomaly: Anomaly) {
        let (What::Kernel(kernel), Some(timing)) = (operation.what, operation.timing) else { return };
        self.runs += 1;
        let key = KernelKey { process: operation.process, name: kernel.name };
        let over_ns = anomaly.over_ns(timing.duration_ns);
        let is_full = self.kernels.len() >= KERNELS_MAX;
        let known = self.kernels.get_mut(&key);
        let is_worst = known.as_ref().is_none_or(|known| over_ns > known.worst.over_ns());
        let run = is_worst.then(|| {
            let launched = operation.call.as_ref().map_or(0, |call| call.stack);
            let made = operation.graph.and_then(|node| node.made).map_or(0, |made| made.stack);
            let stack = if made != 0 { made } else { launched };
            OddRun { kernel, anomaly, timing, call: operation.call.clone(), stack, at_ns: None }
        });
        match (known, run) {
            (Some(known), run) => {
                known.runs += 1;
                known.over_ns = known.over_ns.saturating_add(over_ns);
                if let Some(run) = run {
                    known.worst = run;
                }
            }
            (None, Some(worst)) if !is_full => {
                self.places.take(key.process);
                self.kernels.insert(key, OddRuns { runs: 1, over_ns, worst });
            }
            (None, _) => {
                self.beyond += 1;
                self.places.turn_away();
            }
        }
    }

    pub fn process_ends(&mut self, process: u32) {
        self.places.process_ends(process);
    }

    /// Whether odd kernels of processes that ended should be told together.
    pub fn is_short_of_room(&self) -> bool {
        self.places.is_short(self.kernels.len(), KERNELS_MAX)
    }

    /// Outlier runs of one kernel, by its name, with the worst of all.
    pub fn tell_together(&mut self, together: &mut Renumbering<'_>) {
        let mut moved: Vec<_> = self.kernels.extract_if(|key, _| together.has(key.process)).collect();
        // In an order that does not depend on the table's.
        moved.sort_unstable_by_key(|(key, _)| *key);
        let places = moved.len();
        for (key, mut runs) in moved {
            let process = together.member(key.process);
            let at_ns = process.map(|process| process.since_begin_ns(runs.worst.timing.start_ns));
            let told = together.process(key.process).and_then(|process| {
                let name = together.definition(key.process, key.name)?;
                let worst = &mut runs.worst;
                worst.stack = together.definition(key.process, worst.stack)?;
                worst.call = worst.call.as_ref().and_then(|call| together.call(call));
                (worst.kernel.name, worst.at_ns) = (name, at_ns);
                Some(KernelKey { process, name })
            });
            match told.map(|key| self.kernels.entry(key)) {
                None => self.beyond += runs.runs,
                Some(Entry::Vacant(place)) => _ = place.insert(runs),
                Some(Entry::Occupied(known)) => known.into_mut().take_in(runs),
            }
        }
        self.places.told(places, self.kernels.len());
    }

    /// The one that cost the most first.
    pub fn sorted(&self) -> Vec<(KernelKey, &OddRuns)> {
        let mut all: Vec<_> = self.kernels.iter().map(|(key, runs)| (*key, runs)).collect();
        all.sort_unstable_by_key(|(key, runs)| (std::cmp::Reverse(runs.over_ns), *key));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd(name: u32, duration_ns: u64) -> Operation {
        Operation {
            process: 0,
            what: What::Kernel(Kernel { name, ..Kernel::default() }),
            call: None,
            timing: Some(Timing { start_ns: duration_ns, duration_ns }),
            device: 0,
            context: 0,
            stream: 0,
            graph: None,
            verdict: Verdict::Outlier(Anomaly { sigmas: 3.0, median_ns: 100.0 }),
        }
    }

    #[test]
    fn runs_are_added_up_and_the_worst_is_kept() {
        let mut anomalies = Anomalies::default();
        for duration_ns in [150, 900, 200] {
            anomalies.add(&odd(1, duration_ns));
        }
        anomalies.add(&odd(2, 5_000));
        anomalies.add(&Operation { verdict: Verdict::Usual, ..odd(1, 9_999) });
        anomalies.add(&Operation { verdict: Verdict::Unjudged, ..odd(3, 9_999) });
        let all: Vec<_> = anomalies.sorted();
        let told: Vec<_> = all
            .iter()
            .map(|(key, runs)| (key.name, runs.runs, runs.over_ns, runs.worst.timing.duration_ns))
            .collect();
        assert_eq!(told, [(2, 1, 4_900, 5_000), (1, 3, 950, 900)]);
        assert_eq!((anomalies.runs, anomalies.unjudged, anomalies.beyond), (4, 1, 0));
    }

    #[test]
    fn so_many_kernels_are_told_apart_and_the_rest_is_counted() {
        let mut anomalies = Anomalies::default();
        (0..KERNELS_MAX as u32 + 7).for_each(|name| anomalies.add(&odd(name, 500)));
        anomalies.add(&odd(0, 500));
        assert_eq!((anomalies.sorted().len(), anomalies.beyond), (KERNELS_MAX, 7));
        assert_eq!(anomalies.runs, KERNELS_MAX as u64 + 8);
    }
}
