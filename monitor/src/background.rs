//! Background collection: a subscription, and a thread that reports when the device's thread hangs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::error::GpuMonitorError;
use crate::metrics::GpuMetrics;
use crate::subscription::{Recipient, Subscription};
use crate::worker::{Command, Shared};

/// Keeps background collection going until it is dropped. Dropping it waits for a call of the callback that
/// is under way, so a callback must not own its handle.
pub struct GpuMonitorHandle {
    id: u64,
    recipient: Recipient,
    commands: Sender<Command>,
    /// Closed at the end, which ends the watching thread.
    _watched: Sender<()>,
}

impl GpuMonitorHandle {
    /// Begins to deliver samples.
    pub(crate) fn begin(
        commands: &Sender<Command>,
        shared: &Arc<Shared>,
        interval: Duration,
        answer_limit: Duration,
        recipient: Recipient,
    ) -> GpuMonitorHandle {
        static IDS: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only uniqueness matters.
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let subscription = Subscription::new(id, interval, recipient.clone());
        if commands.send(Command::Begin(subscription)).is_err() {
            recipient.deliver(GpuMetrics::failed(shared.device_index, ended()));
        }
        let (watched, end) = mpsc::channel();
        let (its_shared, its_recipient) = (Arc::clone(shared), recipient.clone());
        let watch = move || {
            let pause = answer_limit.max(PAUSE_MIN) / 2;
            while end.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                if let Some(problem) = its_shared.hang(answer_limit) {
                    its_recipient.deliver(GpuMetrics::failed(its_shared.device_index, problem));
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("gpu-watch".into()).spawn(watch) {
            // Samples come all the same; only a hang would not be reported.
            let problem = GpuMonitorError::NoThread(error.to_string());
            recipient.deliver(GpuMetrics::failed(shared.device_index, problem));
        }
        GpuMonitorHandle { id, recipient, commands: commands.clone(), _watched: watched }
    }

    /// Ends the collection; the callback is not called again once this returns.
    pub fn stop(self) {}
}

impl Drop for GpuMonitorHandle {
    fn drop(&mut self) {
        self.recipient.remove();
        // A thread that ended delivers nothing anyway.
        let _ = self.commands.send(Command::End(self.id));
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

const PAUSE_MIN: Duration = Duration::from_millis(2);
