//! Sends steps from the drain thread, and counts the batches: the drain thread compares the count with what
//! was stored.

use std::cell::Cell;

use crossbeam_channel::Sender;

use crate::batch::Batch;
use crate::session::step::Step;

pub struct StepSender {
    steps: Sender<Step>,
    /// Batches sent so far.
    sent: Cell<u64>,
}

impl StepSender {
    /// `before`: batches that others have already sent.
    pub fn new(steps: Sender<Step>, before: u64) -> StepSender {
        StepSender { steps, sent: Cell::new(before) }
    }

    /// Sends a batch. Blocks while the processing thread is behind: the rings buffer meanwhile. If that
    /// thread has panicked, the batch is dropped, and the recorder reports the panic at the end.
    pub fn batch(&self, batch: Batch) {
        self.sent.set(self.sent.get() + 1);
        let _ = self.steps.send(Step::Batch(batch));
    }

    /// Sends a step that is no batch.
    pub fn step(&self, step: Step) {
        let _ = self.steps.send(step);
    }

    pub fn sent(&self) -> u64 {
        self.sent.get()
    }
}
