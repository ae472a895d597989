//! The digest thread: takes each step of the stream in the order it came, and keeps all of it or its last
//! seconds.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use gputrace_wire::atomic::Ordering;

use crate::batch::Batch;
use crate::model::Model;
use crate::model::sink::Sink;
use crate::session::board::{Board, Next, Pace};
use crate::session::last::{Last, Outcome};
use crate::session::rotation::Rotation;
use crate::session::shared::Shared;
use crate::session::step::Step;
use crate::session::store::Store;
use crate::stream::clock::monotonic_ns;

/// What is kept of the stream.
pub enum Keep<S> {
    /// Everything: stored and given to the model as it comes. A file that cannot be written does not stop
    /// the model.
    All { store: Store, model: Box<Model<S>>, shared: Arc<Shared>, rotation: Option<Box<Rotation>> },
    /// The last seconds: they reach the file and the sink at the end.
    Last { last: Last, sink: S },
}

/// Consumes the stream up to its end.
pub fn run<S: Sink>(steps: &Receiver<Step>, mut keep: Keep<S>, board: &Board) -> Outcome<S> {
    let mut pace = Pace::with_ticks();
    loop {
        match pace.next(steps) {
            Next::Step(Step::Batch(batch)) => {
                pace.note(&batch);
                keep.consume(&batch, board);
            }
            Next::Step(Step::Look(asked)) => {
                keep.tell(board);
                asked.iter().for_each(|asked| _ = asked.try_send(()));
            }
            Next::Step(Step::Death { process, death }) => {
                if let Keep::Last { last, .. } = &mut keep {
                    last.death(process, death);
                }
            }
            // Nothing is dumped where everything is kept.
            Next::Step(Step::Dump(request)) => {
                if let Keep::Last { last, .. } = &mut keep {
                    last.dump(request);
                }
            }
            Next::Tell => keep.tell(board),
            Next::Tick => {
                keep.time_passes();
                board.time_passes();
            }
            Next::End => break,
        }
    }
    // Outputs and what is sent may take a while yet, and somebody may ask meanwhile.
    keep.tell(board);
    keep.finish()
}

impl<S: Sink> Keep<S> {
    fn consume(&mut self, batch: &Batch, board: &Board) {
        match self {
            Keep::All { store, model, shared, rotation } => {
                if store.write(batch) || store.ends_at().is_some() {
                    board.trace(store.ends_at(), store.left_out());
                }
                if let Some(limit) = store.size_limit() {
                    board.size_limit(&limit);
                }
                // SYNC: pairs with the drain thread's Acquire: it gives back what is in the file, or never
                // will be.
                shared.stored.fetch_add(1, Ordering::Release);
                model.consume(batch);
                // Where nothing can be compressed, the store reports it.
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

    /// Half a second has passed.
    fn time_passes(&mut self) {
        let Keep::All { store, model, rotation, .. } = self else { return };
        let now_ns = monotonic_ns();
        model.time_passes(now_ns);
        if rotation.as_mut().is_some_and(|rotation| rotation.cut_if_due(store, now_ns)) {
            model.forget_exited();
        }
    }

    fn tell(&self, board: &Board) {
        match self {
            Keep::All { model, rotation, .. } => {
                board.model(model);
                if let Some(rotation) = rotation {
                    board.rotation(rotation.files());
                }
            }
            Keep::Last { last, .. } => board.flight(last.window(), monotonic_ns()),
        }
    }

    fn finish(self) -> Outcome<S> {
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
