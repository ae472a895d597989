//! One signal's queue and numbers: filled by any thread, emptied by the sender's.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::otlp::Signal;
use crate::otlp::config::Target;
use crate::otlp::queue::{EncodedRequest, POINTS_MAX_BYTES, Queue, SPANS_MAX_BYTES};
use crate::otlp::status::SignalStatus;

/// What to do with a request that does not fit into the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFull {
    /// For a live program: drop the oldest requests and count what they held.
    DropsOldest,
    /// For a trace file, which can wait: block until the request fits or the queue is closed.
    Waits,
}

#[derive(Debug)]
pub struct Lane {
    pub signal: Signal,
    state: Mutex<State>,
    pub arrived: Notify,
    /// There is room again, or never will be.
    room: Condvar,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    status: SignalStatus,
    /// Items and bytes under way.
    under_way: (u64, u64),
    /// Nobody sends any more: why.
    closed: Option<String>,
    dropped_is_told: bool,
}

/// The most that is queued, of a signal.
pub fn max_bytes(signal: Signal) -> usize {
    match signal {
        Signal::Traces => SPANS_MAX_BYTES,
        Signal::Metrics => POINTS_MAX_BYTES,
    }
}

impl Lane {
    pub fn new(target: &Target) -> Lane {
        let status = SignalStatus {
            endpoint: target.endpoint.shown(target.protocol),
            protocol: target.protocol.name(),
            ..SignalStatus::default()
        };
        let state = State {
            queue: Queue::new(max_bytes(target.signal)),
            status,
            under_way: (0, 0),
            closed: None,
            dropped_is_told: false,
        };
        Lane { signal: target.signal, state: Mutex::new(state), arrived: Notify::new(), room: Condvar::new() }
    }

    /// Held for a few instructions only, by whomever.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, request: EncodedRequest, on_full: OnFull) {
        let mut state = self.state();
        while on_full == OnFull::Waits
            && state.closed.is_none()
            && state.queue.is_full_for(request.body.len())
        {
            let woken = self.room.wait_timeout(state, Duration::from_secs(1));
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.closed.is_some() {
            state.status.dropped += request.items;
            return;
        }
        let gone = state.queue.push(request);
        state.status.dropped += gone;
        drop(state);
        self.arrived.notify_one();
    }

    /// The oldest, which counts as queued until it is told what became of it.
    pub fn take(&self) -> Option<EncodedRequest> {
        let mut state = self.state();
        let request = state.queue.pop()?;
        state.under_way = (request.items, request.body.len() as u64);
        drop(state);
        self.room.notify_all();
        Some(request)
    }

    pub fn taken(&self, rejected: u64) {
        let mut state = self.state();
        let (items, _) = std::mem::take(&mut state.under_way);
        let rejected = rejected.min(items);
        state.status.requests += 1;
        state.status.sent += items - rejected;
        state.status.rejected += rejected;
    }

    pub fn refused(&self) {
        let mut state = self.state();
        let (items, _) = std::mem::take(&mut state.under_way);
        state.status.rejected += items;
    }

    pub fn retries(&self) {
        self.state().status.retries += 1;
    }

    pub fn fails(&self, why: &str) {
        self.state().status.last_error = Some(why.to_owned());
    }

    pub fn close(&self, why: &str) {
        self.state().closed.get_or_insert_with(|| why.to_owned());
        self.room.notify_all();
    }

    pub fn closed(&self) -> Option<String> {
        self.state().closed.clone()
    }

    /// Whether there are drops that nobody was told of: true once.
    pub fn has_news_of_drops(&self) -> bool {
        let mut state = self.state();
        let has = state.status.dropped > 0 && !state.dropped_is_told;
        state.dropped_is_told |= has;
        has
    }

    pub fn status(&self) -> SignalStatus {
        let state = self.state();
        SignalStatus {
            queued: state.queue.items() + state.under_way.0,
            queued_bytes: state.queue.bytes() as u64 + state.under_way.1,
            ..state.status.clone()
        }
    }
}
