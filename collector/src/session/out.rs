//! The stream's beginning: what the drain thread sends, counted, so that it knows what was stored.

use std::cell::Cell;

use crossbeam_channel::Sender;

use crate::batch::Batch;
use crate::session::step::Step;

pub struct Out {
    steps: Sender<Step>,
    /// Batches in the stream so far.
    sent: Cell<u64>,
}

impl Out {
    /// `before`: batches that others have put into the stream.
    pub fn new(steps: Sender<Step>, before: u64) -> Out {
        Out { steps, sent: Cell::new(before) }
    }

    /// Hands a batch on, waiting while the digest thread is behind: the rings are the buffer then.
    /// If it is gone, the batch goes nowhere, and the recorder finds that thread dead at the end.
    pub fn batch(&self, batch: Batch) {
        self.sent.set(self.sent.get() + 1);
        let _ = self.steps.send(Step::Batch(batch));
    }

    /// Hands on what is no batch.
    pub fn step(&self, step: Step) {
        let _ = self.steps.send(step);
    }

    pub fn sent(&self) -> u64 {
        self.sent.get()
    }
}
