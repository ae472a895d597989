//! The digest thread: stores each batch and gives it to the model, in the order it came.

use std::path::PathBuf;

use crossbeam_channel::Receiver;
use gputrace_wire::atomic::{AtomicU64, Ordering};

use crate::batch::SizeLimit;
use crate::error::Error;
use crate::model::sink::Sink;
use crate::model::{Model, Totals};
use crate::session::board::{Board, Next, Pace};
use crate::session::step::Step;
use crate::session::store::Store;
use crate::stream::clock::monotonic_ns;

/// What is there when the stream has ended.
pub struct Digested<S> {
    pub totals: Totals,
    pub sink: S,
    pub trace_path: PathBuf,
    pub trace_bytes: u64,
    /// Why the file is not whole.
    pub trace_error: Option<Error>,
    /// The limit of its size and what it leaves out for that, if it was reached.
    pub size_limit: Option<SizeLimit>,
}

/// Consumes the stream up to its end. A file that cannot be written does not stop the model. `stored` counts the batches that are in the file, or never will be.
pub fn run<S: Sink>(
    steps: &Receiver<Step>,
    mut store: Store,
    stored: &AtomicU64,
    board: &Board,
    sink: S,
) -> Digested<S> {
    let mut model = Model::new(sink);
    let mut pace = Pace::with_ticks();
    loop {
        let batch = match pace.next(steps) {
            Next::Step(Step::Batch(batch)) => batch,
            Next::Step(Step::Look(asked)) => {
                board.model(&model);
                asked.iter().for_each(|asked| _ = asked.try_send(()));
                continue;
            }
            // Nothing is dumped where everything is kept.
            Next::Step(_) => continue,
            Next::Tell => {
                board.model(&model);
                continue;
            }
            Next::Tick => {
                model.time_passes(monotonic_ns());
                board.time_passes();
                continue;
            }
            Next::End => {
                // Outputs and what is sent may take a while yet, and somebody may ask meanwhile.
                board.model(&model);
                break;
            }
        };
        pace.note(&batch);
        if store.write(&batch) || store.ends_at().is_some() {
            board.trace(store.ends_at(), store.left_out());
        }
        if let Some(limit) = store.size_limit() {
            board.size_limit(&limit);
        }
        // SYNC: pairs with the drain thread's Acquire: it gives back what is in the file.
        stored.fetch_add(1, Ordering::Release);
        model.consume(&batch);
    }
    let (mut totals, sink) = model.finish();
    let stored = store.finish();
    totals.not_in_trace(stored.left_out);
    Digested {
        totals,
        sink,
        trace_path: stored.path,
        trace_bytes: stored.whole_bytes,
        trace_error: stored.error,
        size_limit: stored.size_limit,
    }
}
