//! What crosses from the drain thread to the digest thread.

use crossbeam_channel::Sender;

use crate::batch::Batch;
use crate::flight_recorder::DumpRequest;
use crate::session::death::Death;

/// In the order in which it came.
pub(crate) enum Step {
    Batch(Batch),
    /// What a process died of; its end comes next.
    Death {
        process: u32,
        death: Death,
    },
    /// Somebody wants what is held up to here.
    Dump(DumpRequest),
    /// Somebody wants the board to be of this moment; each sender is written to once it is.
    Look(Vec<Sender<()>>),
}
