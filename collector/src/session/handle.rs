//! The handle by which other threads request a session's status and dumps.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;

use crate::flight_recorder::{DumpReason, DumpRequest};
use crate::session::death::Death;
use crate::session::shared::Shared;
use crate::session::status::{SharedStatus, Status};

/// How long [`Handle::status`] waits for a new status.
const LOOK_LIMIT: Duration = Duration::from_millis(500);

/// A handle to a running session.
#[derive(Clone)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) status: Arc<SharedStatus>,
}

impl Handle {
    /// Requests a dump and does not wait for it.
    pub fn dump(&self, reason: DumpReason) {
        // The error has no reader: a dump by signal has no reply, and the next signal requests another.
        let _ = self.shared.order_dump(DumpRequest { reason, reply: None });
    }

    /// Requests a dump and waits for at most `limit`. Returns its path, or why there is none.
    pub fn dump_and_wait(&self, reason: DumpReason, limit: Duration) -> Result<PathBuf, String> {
        if self.status.status().flight_recorder_seconds.is_none() {
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

    /// Notes which signal killed a process, if any did. Called before the process is reaped: afterwards the
    /// kernel reports it to nobody.
    pub fn note_death(&self, pid: u32, signal: Option<i32>) {
        self.shared.note_death(pid, signal.map_or(Death::Exit, Death::Signal));
    }

    /// Adds a line about processes that should be recorded and do not connect to the session's socket. The
    /// report shows it and counts as incomplete.
    pub fn note_unrecorded(&self, line: String) {
        self.shared.miss(line);
    }

    /// The status now, or, if the collector needs longer than [`LOOK_LIMIT`], the last one, which is
    /// [`Status::age_ns`] old.
    pub fn status(&self) -> Status {
        let (reply, done) = crossbeam_channel::bounded(1);
        if self.shared.order_look(reply) {
            let _ = done.recv_timeout(LOOK_LIMIT);
        }
        self.status.status()
    }
}
