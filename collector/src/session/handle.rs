//! A session as the threads see it that do not record: asked how it goes, and for dumps.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;

use crate::flight_recorder::{DumpReason, DumpRequest};
use crate::session::board::{Board, Status};
use crate::session::death::Death;
use crate::session::shared::Shared;

/// How long whoever asks waits for what was read so far to be in the answer.
const LOOK_LIMIT: Duration = Duration::from_millis(500);

/// A running session as its other threads see it.
#[derive(Clone)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) board: Arc<Board>,
}

impl Handle {
    /// Has what is held written, and does not wait for it.
    pub fn dump(&self, reason: DumpReason) {
        // Who cannot be answered is not told why there is none; the next signal asks again.
        let _ = self.shared.order_dump(DumpRequest { reason, reply: None });
    }

    /// The same, waiting at most so long. Says where it is, or why not.
    pub fn dump_and_wait(&self, reason: DumpReason, limit: Duration) -> Result<PathBuf, String> {
        if self.board.status().flight_recorder_seconds.is_none() {
            return Err("it has no flight recorder; start it with --flight-recorder".into());
        }
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.shared.order_dump(DumpRequest { reason, reply: Some(reply) })?;
        answer.recv_timeout(limit).unwrap_or_else(|error| {
            Err(match error {
                RecvTimeoutError::Timeout => format!("the dump takes longer than {} s", limit.as_secs()),
                RecvTimeoutError::Disconnected => "the session has ended, and wrote what it held".into(),
            })
        })
    }

    /// Says that a process was killed by a signal, or by none, before anybody reaps it: afterwards
    /// the kernel tells it to nobody.
    pub fn note_death(&self, pid: u32, signal: Option<i32>) {
        self.shared.note_death(pid, signal.map_or(Death::Exit, Death::Signal));
    }

    /// Adds a line about processes that should be recorded and do not come to the session's socket: the
    /// report has it, and is not complete.
    pub fn note_unrecorded(&self, line: String) {
        self.shared.miss(line);
    }

    /// As it is now, or, where the collector does not get that far within [`LOOK_LIMIT`], as it was
    /// [`Status::age_ns`] ago.
    pub fn status(&self) -> Status {
        let (reply, done) = crossbeam_channel::bounded(1);
        if self.shared.order_look(reply) {
            let _ = done.recv_timeout(LOOK_LIMIT);
        }
        self.board.status()
    }
}
