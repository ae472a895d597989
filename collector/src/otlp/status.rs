//! How sending goes, in numbers, for summaries and for those who ask meanwhile.

use serde::Serialize;

use crate::otlp::Signal;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ExportStatus {
    /// `None`: not sent at all.
    pub traces: Option<SignalStatus>,
    pub metrics: Option<SignalStatus>,
}

/// Of one signal; items are spans or data points. Every item that was given is in exactly one of `sent`, `queued`,
/// `dropped` and `rejected`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SignalStatus {
    /// Without what may be secret in it.
    pub endpoint: String,
    pub protocol: &'static str,
    /// Taken by the back end.
    pub sent: u64,
    /// Requests that it answered well.
    pub requests: u64,
    /// Waiting, with what is under way.
    pub queued: u64,
    pub queued_bytes: u64,
    /// Gone from the full queue.
    pub dropped: u64,
    /// Refused by the back end for good.
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

    /// Whether everything that was given has been taken.
    pub fn is_all_delivered(&self) -> bool {
        Signal::ALL.iter().filter_map(|signal| self.of(*signal)).all(|status| status.undelivered() == 0)
    }
}

impl SignalStatus {
    pub fn undelivered(&self) -> u64 {
        self.queued + self.dropped + self.rejected
    }
}
