//! The estimate as it goes on, for totals that never go down: each operation without device times adds the
//! mean of those like it so far, or of its function.

use gputrace_wire::cell::flag;
use rustc_hash::FxHashMap;

use super::key::{EstimateKey, KeyWork};
use crate::model::counted::CountedLaunches;
use crate::model::operation::Operation;

/// Keys that have a mean.
const KEYS_MAX: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
pub struct RunningMeans {
    /// How many were timed, and their time.
    known: FxHashMap<EstimateKey, (u64, u64)>,
    /// Operations without an estimate, since none like them was timed before.
    pub unmeasured: u64,
}

impl RunningMeans {
    /// Whether the operation is of a session where only a part has device times.
    #[inline]
    pub fn concerns(operation: &Operation) -> bool {
        operation.call.as_ref().is_some_and(|call| call.flags & flag::UNTIMED != 0 || call.window != 0)
    }

    fn add(&mut self, key: EstimateKey, duration_ns: u64) {
        if self.known.len() < KEYS_MAX || self.known.contains_key(&key) {
            let (count, ns) = self.known.entry(key).or_default();
            *count += 1;
            *ns = ns.saturating_add(duration_ns);
        }
    }

    /// The estimate for launches that were only counted; `None` if their kernel was not timed before.
    pub fn counted(&mut self, launches: &CountedLaunches) -> Option<f64> {
        let CountedLaunches { process, function, launches, .. } = *launches;
        let work = KeyWork::Kernel { function, grid: [0; 3], block: [0; 3] };
        match self.known.get(&EstimateKey { process, stack: 0, work }) {
            Some((count, ns)) => Some(*ns as f64 / *count as f64 * launches as f64),
            None => {
                self.unmeasured = self.unmeasured.saturating_add(launches);
                None
            }
        }
    }

    /// The estimate for an operation without times; `None` for one with, and if none like it was timed.
    pub fn operation(&mut self, operation: &Operation) -> Option<f64> {
        let call = operation.call.as_ref()?;
        let key = EstimateKey::of(operation, call)?;
        match operation.timing {
            // What a window was opened for because it was new is no usual one.
            Some(_) if call.window & 1 != 0 => None,
            Some(timing) => {
                self.add(key, timing.duration_ns);
                if key != key.by_function() {
                    self.add(key.by_function(), timing.duration_ns);
                }
                None
            }
            None => match self.known.get(&key).or_else(|| self.known.get(&key.by_function())) {
                Some((count, ns)) => Some(*ns as f64 / *count as f64),
                None => {
                    self.unmeasured += 1;
                    None
                }
            },
        }
    }
}
