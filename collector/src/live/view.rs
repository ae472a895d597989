//! The live tables of each running process: the processing thread makes them, and threads that answer
//! requests read them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::live::LiveTables;
use crate::stream::clock::monotonic_ns;

/// The processing thread makes tables for this long after the latest request.
const WATCHED_NS: u64 = 5_000_000_000;
/// The processing thread may spend about this much of each half second on tables. Once it has, the remaining
/// processes keep their older tables until the next half second.
const BUDGET_NS: u64 = 50_000_000;
const HALF_SECOND_NS: u64 = 500_000_000;
/// How long [`LiveView::tables`] waits for the first tables.
const FIRST_LIMIT: Duration = Duration::from_millis(1200);

#[derive(Debug, Default)]
pub struct LiveView {
    /// When [`LiveView::tables`] was last called, on CLOCK_MONOTONIC; 0 if never.
    asked_ns: AtomicU64,
    state: Mutex<ViewState>,
    made: Condvar,
}

#[derive(Debug, Default)]
struct ViewState {
    /// By process number.
    tables: BTreeMap<u32, LiveTables>,
    made_ns: u64,
    /// When the current half second began.
    period_ns: u64,
    /// How long the making of tables took in the current half second.
    spent_ns: u64,
}

impl LiveView {
    /// The tables of all running processes together, at most a second or two old. The first call waits until
    /// they are made. `None` if none are made in time, or ever: a session that keeps only its last seconds
    /// makes none.
    pub fn tables(&self) -> Option<LiveTables> {
        let asked_ns = monotonic_ns();
        self.asked_ns.store(asked_ns, Ordering::Relaxed);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |state: &mut ViewState| asked_ns.saturating_sub(state.made_ns) > WATCHED_NS;
        let waited = self.made.wait_timeout_while(state, FIRST_LIMIT, is_old);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (state.made_ns != 0).then(|| state.tables.values().fold(LiveTables::default(), LiveTables::with))
    }

    /// Makes the tables of a process if a request for them is recent and the half second's time is not spent.
    pub(super) fn refresh(&self, number: u32, now_ns: u64, make: impl FnOnce() -> LiveTables) {
        if now_ns.saturating_sub(self.asked_ns.load(Ordering::Relaxed)) > WATCHED_NS {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ns.saturating_sub(state.period_ns) >= HALF_SECOND_NS {
            (state.period_ns, state.spent_ns) = (now_ns, 0);
        }
        if state.spent_ns > BUDGET_NS {
            return;
        }
        let begin_ns = monotonic_ns();
        let tables = make();
        state.spent_ns += monotonic_ns().saturating_sub(begin_ns);
        state.made_ns = now_ns;
        state.tables.insert(number, tables);
        drop(state);
        self.made.notify_all();
    }

    pub(super) fn forget(&self, number: u32) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).tables.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::live::LiveRow;

    fn tables(name: &str) -> LiveTables {
        let row = LiveRow { name: name.into(), calls: 1, total_ns: Some(5), bytes: None };
        LiveTables { kernels: vec![row], ..LiveTables::default() }
    }

    #[test]
    fn tables_are_made_only_while_somebody_watches() {
        let view = LiveView::default();
        view.refresh(1, monotonic_ns(), || panic!("nobody watches"));
        assert_eq!(view.tables(), None);
        view.refresh(1, monotonic_ns(), || tables("a"));
        assert_eq!(view.tables().unwrap().kernels[0].name, "a");
        view.refresh(1, monotonic_ns() + WATCHED_NS + 1, || panic!("nobody has watched for long"));
    }

    #[test]
    fn first_question_waits_for_the_tables() {
        let view = Arc::new(LiveView::default());
        let maker = Arc::clone(&view);
        let thread = thread::spawn(move || {
            for _ in 0..1000 {
                maker.refresh(7, monotonic_ns(), || tables("late"));
                thread::sleep(Duration::from_millis(1));
            }
        });
        assert_eq!(view.tables().unwrap().kernels[0].name, "late");
        thread.join().unwrap();
    }

    #[test]
    fn processes_are_added_up_and_forgotten() {
        let view = LiveView::default();
        assert_eq!(view.tables(), None);
        view.refresh(1, monotonic_ns(), || tables("a"));
        view.refresh(2, monotonic_ns(), || tables("a"));
        assert_eq!(view.tables().unwrap().kernels[0].calls, 2);
        view.forget(2);
        assert_eq!(view.tables().unwrap().kernels[0].calls, 1);
    }
}
