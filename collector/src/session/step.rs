//! What the drain thread sends to the processing thread.

use crossbeam_channel::Sender;

use crate::batch::Batch;
use crate::flight_recorder::DumpRequest;
use crate::session::death::Death;

/// One step of the stream.
#[expect(clippy::large_enum_variant, reason = "nearly all steps are batches, so boxing them saves nothing")]
pub(crate) enum Step {
    Batch(Batch),
    /// How a process died. Its end follows.
    Death {
        process: u32,
        death: Death,
    },
    /// A request to dump what is held up to here.
    Dump(DumpRequest),
    /// A request to write the status now; each sender is answered after that.
    Look(Vec<Sender<()>>),
}
