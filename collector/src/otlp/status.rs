//! Counters of the exporter, for summaries and `gputrace ctl`.

use serde::Serialize;

use crate::otlp::Signal;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExportStatus {
    /// `None`: the signal is not sent.
    pub traces: Option<SignalStatus>,
    pub metrics: Option<SignalStatus>,
}

/// Counters of one signal, in items: spans or data points. Every item is counted in exactly one of `sent`,
/// `queued`, `dropped` and `rejected`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SignalStatus {
    /// The URL without secrets.
    pub endpoint: String,
    pub protocol: &'static str,
    /// Accepted by the back end.
    pub sent: u64,
    /// Requests that the back end accepted.
    pub requests: u64,
    /// Waiting or being sent.
    pub queued: u64,
    pub queued_bytes: u64,
    /// Dropped from a full queue.
    pub dropped: u64,
    /// Rejected by the back end for good.
    pub rejected: u64,
    /// Attempts after the first of a request.
    pub retries: u64,
    pub last_error: Option<String>,
}

impl ExportStatus {
    pub fn of(&self, signal: Signal) -> Option<&SignalStatus> {
        match signal {
            Signal::Traces => self.traces.as_ref(),
            Signal::Metrics => self.metrics.as_ref(),
        }
    }

    pub(super) fn set(&mut self, signal: Signal, status: SignalStatus) {
        match signal {
            Signal::Traces => self.traces = Some(status),
            Signal::Metrics => self.metrics = Some(status),
        }
    }

    /// Whether the back end has accepted every item.
    pub fn is_all_delivered(&self) -> bool {
        Signal::ALL.iter().filter_map(|signal| self.of(*signal)).all(|status| status.undelivered() == 0)
    }
}

impl SignalStatus {
    pub fn undelivered(&self) -> u64 {
        self.queued + self.dropped + self.rejected
    }
}
