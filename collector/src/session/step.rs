//! What crosses from the drain thread to the digest thread.

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
}
