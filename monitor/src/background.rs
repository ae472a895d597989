//! Background collection: a subscription that lives as long as its handle.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::error::GpuMonitorError;
use crate::metrics::GpuMetrics;
use crate::rounds;
use crate::subscription::{Recipient, Subscription, Wanted};
use crate::worker::{Command, Seat};

/// A device and its own thread, which ends once nobody uses them.
pub struct InUse {
    pub seat: Arc<Seat>,
    pub commands: Sender<Command>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        // A thread that has ended needs no word.
        let _ = self.commands.send(Command::Quit);
    }
}

/// Keeps background collection going until it is dropped. Dropping it waits for a call of the callback that
/// is under way, so a callback must not own its handle.
pub struct GpuMonitorHandle {
    id: u64,
    recipient: Recipient,
    device: Arc<InUse>,
}

impl GpuMonitorHandle {
    /// Begins to deliver samples.
    pub(crate) fn begin(
        device: &Arc<InUse>,
        interval: Duration,
        wanted: Wanted,
        answer_limit: Duration,
        recipient: Recipient,
    ) -> GpuMonitorHandle {
        static IDS: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only uniqueness matters.
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let subscription = Subscription::new(id, interval, wanted, answer_limit, recipient.clone());
        if !device.seat.subscribe(subscription) {
            recipient.deliver(Box::new(GpuMetrics::failed(device.seat.shared.device_index, ended())));
        }
        rounds::notify();
        GpuMonitorHandle { id, recipient, device: Arc::clone(device) }
    }

    /// Ends the collection; the callback is not called again once this returns.
    pub fn stop(self) {}
}

impl Drop for GpuMonitorHandle {
    fn drop(&mut self) {
        self.recipient.remove();
        self.device.seat.unsubscribe(self.id);
    }
}

impl fmt::Debug for GpuMonitorHandle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("GpuMonitorHandle").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The device's thread is gone: a callback panicked on it.
pub fn ended() -> GpuMonitorError {
    GpuMonitorError::NoThread("the device's thread ended, after a callback panicked".into())
}
