//! One signal's queue with its counters: any thread fills it, the exporter's thread empties it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::otlp::Signal;
use crate::otlp::config::SignalTarget;
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
pub struct SignalQueue {
    pub signal: Signal,
    state: Mutex<State>,
    pub arrived: Notify,
    /// Notified when a request was taken, or the queue was closed.
    space: Condvar,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    status: SignalStatus,
    /// Items and bytes of the request that is being sent.
    under_way: (u64, u64),
    /// Why requests are no longer sent.
    closed: Option<String>,
    drop_is_reported: bool,
}

/// The most bytes that a signal's queue holds.
pub fn max_bytes(signal: Signal) -> usize {
    match signal {
        Signal::Traces => SPANS_MAX_BYTES,
        Signal::Metrics => POINTS_MAX_BYTES,
    }
}

impl SignalQueue {
    pub fn new(target: &SignalTarget) -> SignalQueue {
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
            drop_is_reported: false,
        };
        SignalQueue {
            signal: target.signal,
            state: Mutex::new(state),
            arrived: Notify::new(),
            space: Condvar::new(),
        }
    }

    /// The lock is held for a few instructions only.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request. A closed queue counts it as dropped.
    pub fn push(&self, request: EncodedRequest, on_full: OnFull) {
        let mut state = self.state();
        while on_full == OnFull::Waits
            && state.closed.is_none()
            && state.queue.is_full_for(request.body.len())
        {
            let woken = self.space.wait_timeout(state, Duration::from_secs(1));
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.closed.is_some() {
            state.status.dropped += request.items;
            return;
        }
        let dropped = state.queue.push(request);
        state.status.dropped += dropped;
        drop(state);
        self.arrived.notify_one();
    }

    /// Takes the oldest request. It counts as queued until its outcome is set.
    pub fn take(&self) -> Option<EncodedRequest> {
        let mut state = self.state();
        let request = state.queue.pop()?;
        state.under_way = (request.items, request.body.len() as u64);
        drop(state);
        self.space.notify_all();
        Some(request)
    }

    pub fn accepted(&self, rejected: u64) {
        let mut state = self.state();
        let (items, _) = std::mem::take(&mut state.under_way);
        let rejected = rejected.min(items);
        state.status.requests += 1;
        state.status.sent += items - rejected;
        state.status.rejected += rejected;
    }

    pub fn rejected(&self) {
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
        self.space.notify_all();
    }

    pub fn closed(&self) -> Option<String> {
        self.state().closed.clone()
    }

    /// Whether items were dropped and this was not reported yet: true once.
    pub fn has_unreported_drops(&self) -> bool {
        let mut state = self.state();
        let has = state.status.dropped > 0 && !state.drop_is_reported;
        state.drop_is_reported |= has;
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
