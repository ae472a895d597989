//! The processing thread: consumes the steps of the stream in order, and keeps all of it or its last seconds.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use gputrace_wire::atomic::Ordering;

use crate::batch::Batch;
use crate::model::Model;
use crate::model::sink::Sink;
use crate::session::device_sampling::DeviceSampling;
use crate::session::last::{Last, StreamResult};
use crate::session::rotation::Rotation;
use crate::session::shared::Shared;
use crate::session::status::{Next, Pace, SharedStatus};
use crate::session::step::Step;
use crate::session::store::Store;
use crate::stream::clock::monotonic_ns;

/// Which part of the stream is kept.
pub enum Keep<S> {
    /// Everything: each batch is stored and given to the model. A file that cannot be written does not stop
    /// the model.
    All { store: Store, model: Box<Model<S>>, shared: Arc<Shared>, rotation: Option<Box<Rotation>> },
    /// The last seconds, which reach the file and the sink at the end.
    Last { last: Last, sink: S },
}

/// Consumes the stream up to its end.
pub fn run<S: Sink>(
    steps: &Receiver<Step>,
    mut keep: Keep<S>,
    mut sampling: DeviceSampling,
    status: &SharedStatus,
) -> StreamResult<S> {
    let mut pace = Pace::with_ticks();
    loop {
        match pace.next(steps) {
            Next::Step(Step::Batch(batch)) => {
                pace.note(&batch);
                if matches!(batch, Batch::Unrecorded(_) | Batch::SessionEnd { .. }) {
                    sampling.finish().iter().for_each(|samples| keep.consume(samples, status));
                }
                sampling.note(&batch);
                keep.consume(&batch, status);
            }
            Next::Step(Step::Look(asked)) => {
                keep.write_status(status);
                asked.iter().for_each(|asked| _ = asked.try_send(()));
            }
            Next::Step(Step::Death { process, death }) => {
                if let Keep::Last { last, .. } = &mut keep {
                    last.death(process, death);
                }
            }
            // A session that keeps everything has no dumps.
            Next::Step(Step::Dump(request)) => {
                if let Keep::Last { last, .. } = &mut keep {
                    last.dump(request);
                }
            }
            Next::Write => keep.write_status(status),
            Next::Tick => {
                sampling.take().iter().for_each(|samples| keep.consume(samples, status));
                keep.time_passes();
                status.time_passes();
            }
            Next::End => break,
        }
    }
    // Outputs may take a while; the status is read meanwhile.
    keep.write_status(status);
    keep.finish()
}

impl<S: Sink> Keep<S> {
    fn consume(&mut self, batch: &Batch, status: &SharedStatus) {
        match self {
            Keep::All { store, model, shared, rotation } => {
                if store.write(batch) || store.ends_at().is_some() {
                    status.trace(store.ends_at(), store.left_out());
                }
                if let Some(limit) = store.size_limit() {
                    status.size_limit(&limit);
                }
                // The drain thread counts the batches that it sent, which samples are not among.
                if !matches!(batch, Batch::DeviceSamples(_)) {
                    // SYNC: pairs with the drain thread's Acquire: it releases the slots of entries that are
                    // in the file, or never will be.
                    shared.stored.fetch_add(1, Ordering::Release);
                }
                model.consume(batch);
                // The store reports a compressor that fails.
                if let Some(rotation) = rotation
                    && rotation.note(batch).is_ok()
                    && rotation.cut_if_due(store, monotonic_ns())
                {
                    model.forget_exited();
                }
            }
            Keep::Last { last, .. } => last.consume(batch),
        }
    }

    /// Called each half second.
    fn time_passes(&mut self) {
        let Keep::All { store, model, rotation, .. } = self else { return };
        let now_ns = monotonic_ns();
        model.time_passes(now_ns);
        if rotation.as_mut().is_some_and(|rotation| rotation.cut_if_due(store, now_ns)) {
            model.forget_exited();
        }
    }

    fn write_status(&self, status: &SharedStatus) {
        match self {
            Keep::All { model, rotation, .. } => {
                status.model(model);
                if let Some(rotation) = rotation {
                    status.rotation(rotation.files());
                }
            }
            Keep::Last { last, .. } => status.flight(last.window(), monotonic_ns()),
        }
    }

    fn finish(self) -> StreamResult<S> {
        match self {
            Keep::All { store, model, rotation, .. } => {
                let stored = store.finish();
                let rotated = rotation.map_or((0, 0), |rotation| rotation.finish());
                (Some(model.finish()), stored, Vec::new(), rotated)
            }
            Keep::Last { last, sink } => last.finish(sink),
        }
    }
}
