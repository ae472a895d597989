//! The digest thread: takes each step of the stream in the order it came, and keeps all of it or its last
//! seconds.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use gputrace_wire::atomic::Ordering;

use crate::batch::Batch;
use crate::flight_recorder::Dump;
use crate::model::sink::Sink;
use crate::model::{Model, Totals};
use crate::session::board::{Board, Next, Pace};
use crate::session::last::Last;
use crate::session::shared::Shared;
use crate::session::step::Step;
use crate::session::store::{Store, Stored};
use crate::stream::clock::monotonic_ns;

/// What is kept of the stream.
pub enum Keep<S> {
    /// Everything: stored and given to the model as it comes. A file that cannot be written does not stop
    /// the model.
    All { store: Store, model: Box<Model<S>>, shared: Arc<Shared> },
    /// The last seconds: they reach the file and the sink at the end.
    Last { last: Last, sink: S },
}

/// What is there when the stream has ended: what the model made of it, unless what is held could not be read
/// back; the trace file; what was dumped before.
pub type Outcome<S> = (Option<(Totals, S)>, Stored, Vec<Dump>);

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
                if let Keep::All { model, .. } = &mut keep {
                    model.time_passes(monotonic_ns());
                }
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
            Keep::All { store, model, shared } => {
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
            }
            Keep::Last { last, .. } => last.consume(batch),
        }
    }

    fn tell(&self, board: &Board) {
        match self {
            Keep::All { model, .. } => board.model(model),
            Keep::Last { last, .. } => board.flight(last.window(), monotonic_ns()),
        }
    }

    fn finish(self) -> Outcome<S> {
        match self {
            Keep::All { store, model, .. } => (Some(model.finish()), store.finish(), Vec::new()),
            Keep::Last { last, sink } => last.finish(sink),
        }
    }
}
