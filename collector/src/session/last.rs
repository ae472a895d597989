//! The part of the stream that a flight recorder keeps: the last seconds. They are dumped on request or when
//! a process crashes, and written at the end.

use std::collections::BTreeMap;

use crate::batch::{Batch, ProcessEnd};
use crate::error::Error;
use crate::flight_recorder::{Dump, DumpReason, DumpRequest, Dumper, Snapshot, Window};
use crate::model::Totals;
use crate::model::sink::Sink;
use crate::session::death::{Death, signal_name};
use crate::session::store::Stored;
use crate::stream::clock::monotonic_ns;
use crate::trace_file::TraceWriter;

/// What remains when the stream has ended: the model's totals and sink, or `None` if what is held could not
/// be read back; the trace file; the dumps; the numbers of closed and of deleted trace files.
pub type StreamResult<S> = (Option<(Totals, S)>, Stored, Vec<Dump>, (u64, u64));

pub struct Last {
    window: Window,
    dumper: Dumper,
    writer: TraceWriter,
    trace_error: Option<Error>,
    /// How processes died whose end comes next.
    deaths: BTreeMap<u32, Death>,
    /// How the last process that ended has crashed; `None` if it did not.
    ended_by: Option<String>,
}

impl Last {
    pub fn new(window: Window, dumper: Dumper, writer: TraceWriter) -> Last {
        Last { window, dumper, writer, trace_error: None, deaths: BTreeMap::new(), ended_by: None }
    }

    pub fn window(&self) -> &Window {
        &self.window
    }

    pub fn consume(&mut self, batch: &Batch) {
        let now_ns = monotonic_ns();
        // This writes to memory only: nothing but the compressor can fail.
        if let Err(source) = self.window.push(batch, now_ns) {
            self.trace_error.get_or_insert(Error::System { operation: "compressing", source });
        }
        if let Batch::ProcessEnd { process, end, .. } = *batch {
            let death = self.deaths.remove(&process);
            let crash = (end == ProcessEnd::Vanished && self.window.has_events_of(process))
                .then(|| crash(death))
                .flatten();
            if let Some(reason) = &crash {
                let request = DumpRequest { reason: DumpReason::Crash, reply: None };
                self.dumper.dump(request, || self.window.snapshot(reason, now_ns));
            }
            if end != ProcessEnd::Running {
                self.ended_by = crash;
            }
        }
    }

    pub fn death(&mut self, process: u32, death: Death) {
        self.deaths.insert(process, death);
    }

    pub fn dump(&mut self, request: DumpRequest) {
        let reason = request.reason.name();
        self.dumper.dump(request, || self.window.snapshot(reason, monotonic_ns()));
    }

    /// Writes the trace file from what is held.
    pub fn finish<S: Sink>(self, sink: S) -> StreamResult<S> {
        let Last { mut window, dumper, mut writer, mut trace_error, ended_by, .. } = self;
        let dumps = dumper.finish();
        let reason = ended_by.as_deref().unwrap_or(DumpReason::Exit.name());
        let now_ns = monotonic_ns();
        let snapshot = window.snapshot(reason, now_ns);
        let written = write_what_fits(&snapshot, &mut window, &mut writer, reason, now_ns);
        let left_out = written.unwrap_or_else(|error| {
            trace_error.get_or_insert(error);
            0
        });
        drop(window);
        let stored = Stored {
            path: writer.path().to_owned(),
            whole_bytes: writer.whole_bytes(),
            left_out,
            size_limit: None,
            error: trace_error,
        };
        (snapshot.model(sink).ok(), stored, dumps, (0, 0))
    }
}

/// Attempts with less data, if the file system is too full for all.
const SHORTER_MOST: u32 = 6;

/// Writes what the window holds, or as much of its newest part as the file system has space for. Returns how
/// many entries are left out.
fn write_what_fits(
    snapshot: &Snapshot,
    window: &mut Window,
    writer: &mut TraceWriter,
    reason: &str,
    now_ns: u64,
) -> Result<u64, Error> {
    let Err(mut error) = snapshot.write_to(writer) else { return Ok(0) };
    let before = window.left_out().entries;
    for _ in 0..SHORTER_MOST {
        let fits = usize::try_from(writer.whole_bytes()).unwrap_or(usize::MAX) / 4 * 3;
        window.shrink_to(fits);
        writer.restart()?;
        match window.snapshot(reason, now_ns).write_to(writer) {
            Ok(()) => return Ok(window.left_out().entries.saturating_sub(before)),
            Err(again) => error = again,
        }
    }
    Err(error)
}

/// The reason for a dump after a process ended without a good-bye. `None` if it exited by itself or was ended
/// by SIGTERM, SIGINT or SIGHUP: pools end their workers so, and would use up the dumps.
fn crash(death: Option<Death>) -> Option<String> {
    let name = DumpReason::Crash.name();
    match death {
        Some(Death::Exit | Death::Signal(libc::SIGTERM | libc::SIGINT | libc::SIGHUP)) => None,
        Some(Death::Signal(signal)) => Some(format!("{name} ({})", signal_name(signal))),
        None => Some(name.to_owned()),
    }
}
